"""Model provider on loopback that speaks the wire formats of the services, is as strict as they are, and fails on demand.

In a test: `async with open_provider(script) as server:` and `server.url` as base_url of an anthropic provider,
`server.openai_url` of an openai one. As a process of its own (`__main__`): `python -m pegasus.testing.provider --script echo`.

Tests of a model client against recorded answers find only the mistakes that someone thought of. This server
checks each request as the services do (`parse`), so a client that builds an invalid request fails
here as it would with a real key. It also misbehaves as real connections do: it closes in the middle of an
answer, resets, goes silent, answers with web pages, and takes as long as the test wants.

Read the files in this order; each uses only those before it:

    requests      requests as it has read them, and the checks that all formats share
    answers       answers, faults, and ready-made scripts
    dialects      what single services that speak Chat Completions want otherwise
    anthropic     the format of Anthropic
    chat          Chat Completions of OpenAI, and of everybody who copied them
    responses     Responses of OpenAI
    ollama        the API of Ollama
    formats       which format is spoken at a path
    audio         transcription and speech
    server        state of a provider: what a test looks at and changes
    serving       the HTTP side
    prompt_cache  how much of each request a provider could serve from its cache
"""

from pegasus.testing.provider.answers import ProviderAnswer, refuse
from pegasus.testing.provider.server import AsyncScript, ProviderServer
from pegasus.testing.provider.serving import late, open_provider

__all__ = ["AsyncScript", "ProviderAnswer", "ProviderServer", "late", "open_provider", "refuse"]
