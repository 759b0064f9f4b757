// Colours for code: a plain tokenizer of comments, texts, numbers, words and tags, for the common languages. Each token becomes the text of
// an element; nothing is parsed as HTML. A language that is not known, and code beyond MOST, keeps one colour.

import { h } from "./dom.js";

const MOST = 60000; // characters

const C_WORDS = "break case catch class const continue default delete do else enum extends extern false finally for fn func function if implements import in inline instanceof int interface let long match mod mut namespace new nil null package private protected pub public return self static struct super switch template this throw trait true try type typeof union unsafe use using var void volatile where while with yield async await bool char double float string export from of as impl go defer chan map range select char short unsigned signed sizeof typedef override virtual final abstract var val when object fun".split(" ");
const PY_WORDS = "False None True and as assert async await break class continue def del elif else except finally for from global if import in is lambda match nonlocal not or pass raise return self try while with yield case".split(" ");
const SH_WORDS = "if then else elif fi for while until do done case esac function in return exit export local readonly set unset source alias cd echo sudo".split(" ");
const SQL_WORDS = "select from where and or not insert into values update set delete create table index view drop alter add primary key foreign references join left right inner outer full on as group by order having limit offset union all distinct case when then else end null is in like between exists count sum avg min max with returning true false".split(" ");
const RUBY_WORDS = "alias and begin break case class def do else elsif end ensure false for if in module next nil not or redo rescue retry return self super then true undef unless until when while yield require puts local function repeat".split(" ");

const SLASHES = String.raw`\/\/[^\n]*|\/\*[\s\S]*?(?:\*\/|$)`;
const HASH = String.raw`#[^\n]*`;
const QUOTES = String.raw`"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?`;
const NUMBER = String.raw`\b(?:0[xXbBoO][\da-fA-F_]+|\d[\d_]*(?:\.\d+)?(?:[eE][+-]?\d+)?)\w*\b`;
const WORD = String.raw`[A-Za-z_$][\w$]*`;

const kinds = {
  c: language(SLASHES, `${QUOTES}|\`(?:\\\\.|[^\`\\\\])*\`?`, C_WORDS),
  python: language(HASH, String.raw`"""[\s\S]*?(?:"""|$)|'''[\s\S]*?(?:'''|$)|` + QUOTES, PY_WORDS),
  shell: language(String.raw`(?<=^|\s)#[^\n]*`, String.raw`"(?:\\.|[^"\\])*"?|'[^']*'?`, SH_WORDS),
  sql: language(String.raw`--[^\n]*|\/\*[\s\S]*?(?:\*\/|$)`, QUOTES, SQL_WORDS, true),
  ruby: language(String.raw`#[^\n]*|--[^\n]*`, QUOTES, RUBY_WORDS),
  data: language(HASH, QUOTES, ["true", "false", "null", "yes", "no", "on", "off"]),
  css: language(String.raw`\/\*[\s\S]*?(?:\*\/|$)`, QUOTES, ["important", "media", "import", "supports", "keyframes"]),
};
const markup = new RegExp(String.raw`(?<comment><!--[\s\S]*?(?:-->|$))|(?<word><\/?[A-Za-z][\w:.-]*|\/?>)|(?<string>"[^"]*"?|'[^']*'?)`, "g");
const diff = /(?<removed>^-[^\n]*)|(?<added>^\+[^\n]*)|(?<comment>^@@[^\n]*)/gm;

const NAMES = {
  c: "c h cpp c++ cc hpp cs csharp java js javascript jsx mjs ts typescript tsx go golang rust rs swift kotlin kt scala php dart zig json jsonc json5 proto",
  python: "python py python3 pyi",
  shell: "sh bash zsh shell console fish dockerfile make makefile powershell ps1",
  sql: "sql sqlite postgres postgresql mysql",
  ruby: "ruby rb lua elixir ex perl pl r julia jl",
  data: "yaml yml toml ini conf cfg properties env",
  css: "css scss less",
};
const BY_NAME = new Map(Object.entries(NAMES).flatMap(([kind, names]) => names.split(" ").map((name) => [name, kinds[kind]])));
for (const name of ["html", "xml", "svg", "vue", "svelte"]) BY_NAME.set(name, { pattern: markup, words: new Set() });
for (const name of ["diff", "patch"]) BY_NAME.set(name, { pattern: diff, words: new Set() });

function language(comment, string, words, ignoresCase = false) {
  return { pattern: new RegExp(`(?<comment>${comment})|(?<string>${string})|(?<number>${NUMBER})|(?<name>${WORD})`, "gm"), words: new Set(words), ignoresCase };
}

/** Give the text of a code element its colours. */
export function colour(code, name) {
  const known = BY_NAME.get(name.toLowerCase());
  const text = code.textContent;
  if (!known || text.length > MOST) return;
  const parts = [];
  let end = 0;
  for (const found of text.matchAll(known.pattern)) {
    let [kind] = Object.entries(found.groups).find(([, value]) => value !== undefined);
    if (kind === "name") {
      if (known.words.has(known.ignoresCase ? found[0].toLowerCase() : found[0])) kind = "word";
      else if (text[found.index + found[0].length] === "(") kind = "call";
      else continue;
    }
    parts.push(text.slice(end, found.index), h("span", { class: `tok-${kind}` }, found[0]));
    end = found.index + found[0].length;
  }
  code.replaceChildren(...parts, text.slice(end));
}
