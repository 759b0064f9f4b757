"""Function words: articles, pronouns, prepositions and the like, by which nothing is found.

A question is half made of them ("when did we go to the …"), and each passage of everyday talk holds some, so they would rank long
talk above the passage that is meant. Which language a query is in is told by its function words: a word that is one in another
language ("die", "war", "sin") is kept. At least two are wanted, so that short queries ("die hard") are taken as they stand.

Chinese, Japanese and others without spaces are searched by pairs of characters, of which those with a particle say nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

_LANGUAGES: Final = {
    "English": """
        a about after all also am an and any are as at be because been before being both but by can could did do does
        doing during each for from had has have having he her here hers him his how i if in into is it its just me
        more most my no nor not of off on once only or other our out over own she should so some such than that the
        their them then there these they this those through to too under until up very was we were what when where
        which while who whom whose why will with would you your s t d ll m re ve don doesn didn isn wasn
    """,
    "German": """
        aber als am an auch auf aus bei bin bis das dass dein deine dem den der des die dies diese dieser doch du ein
        eine einem einen einer er es für habe haben hat hatte ich ihr ihre im in ist ja kann mein meine mich mir mit
        nach nicht noch nur ob oder seit sich sie sind so über um und uns unser unsere von vor wann war waren warum
        was wem wen wenn wer wie wir wird wo zu zum zur
    """,
    "French": """
        à a ai as au aux avec c ce ces cette comment d dans de des du elle en est et eu fait il ils j je l la le les
        leur lui m ma mais me mes mon n ne nos notre nous on ont ou où par pas pour pourquoi qu quand que quel quelle
        qui s sa se ses son sont sur t ta te tes ton tu un une vos votre vous y
    """,
    "Spanish": """
        a al como cómo con cual cuál cuando cuándo cuanto cuánto de del desde donde dónde el ella ellos en era es esta
        está este esto fue ha han hasta hay la las le les lo los me mi mis muy ni no nos nosotros nuestra nuestro o
        para pero por qué que quien quién se ser si sin sobre son su sus te tu tus un una uno y ya yo
    """,
    "Portuguese": """
        a ao aos as até com como da das de do dos e é ela ele em era essa esse esta está este eu foi há isso já lhe
        mais mas me meu minha muito na não nas no nos nós nosso o onde os ou para pela pelo por porque qual quando que
        quem se sem ser seu são só sua também te tem um uma você
    """,
    "Italian": """
        a ai al alla anche che chi ci come con cosa da dal dei del della delle di dove e è era gli ha hai hanno ho i
        il in io la le lei lo loro lui ma mi mia mio ne nel nella noi non nostra nostro o per perché più quale quando
        quanto quella quello questa questo se sei si sono su sua suo ti tra tu un una uno vi
    """,
    "Dutch": """
        aan als bij dan dat de die dit door een en er had heb heeft het hij hoe hun ik in is je kan maar me met mij
        mijn naar niet nog of om onze ons ook op over te toen tot uit van voor waar waarom wanneer waren was wat we
        welke wie wij zal ze zich zij zijn zo
    """,
    "Swedish": """
        att av de den det du där efter en er ett från för ha hade han har hon hur i ifrån inte jag kan man med mig min
        mitt när och om oss på sig sin som så till under upp ut vad var varför vem vi vid vilken vår våra är
    """,
    "Polish": """
        a ale bo być był była było co czy dla dlaczego do gdzie go i ich jak jaki jako je jego jej jest jestem już
        kiedy kto który ma mam mi mnie moja moje mój my na nas nie nim o od po pod przez przy są się ta tak tam te
        tego tej ten to ty u w we z za ze że
    """,
    "Russian": """
        а был была было были быть в вам вас во вот все вы где да для до его ее если есть еще же за и из или им их к
        как какой ко когда кто ли мне мой моя мы на нам нас не него нее но о об он она они от по почему при с со так
        там то тогда ты у уже чего чем что чтобы эта эти это этот я
    """,
    "Turkish": """
        ama ben benim bir biz bu çok da daha de değil diye en gibi hangi için ile ise kadar ki kim mı mi mu mü nasıl
        ne neden nerede o olarak onun sen şu ve veya ya zaman
    """,
}
_OF_LANGUAGE: Final = {name: frozenset(words.split()) for name, words in _LANGUAGES.items()}
FEWEST: Final = 2
"""Function words of one language that make a query one of this language."""
_PARTICLES: Final = frozenset("的了吗呢吧啊嗎我你他她它们們是在和么麼什甚这這那哪谁誰はがをにでともへのかよねです")
"""Characters that make a pair of a Chinese or Japanese question say nothing."""


def without_function_words(words: Sequence[str]) -> frozenset[str]:
    """Return those of a query's words, in small letters, that something can be found by; all if there would be none left."""
    spoken = frozenset(words)
    known = max((spoken & of_language for of_language in _OF_LANGUAGE.values()), key=len)
    return (spoken - known if len(known) >= FEWEST else spoken) or spoken


def is_telling(pair: str) -> bool:
    """Return whether a pair of characters without spaces can tell one passage from another."""
    return _PARTICLES.isdisjoint(pair)
