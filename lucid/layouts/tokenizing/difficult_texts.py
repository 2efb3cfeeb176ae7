"""Texts that tokenizers read differently, for a comparison."""

from __future__ import annotations

from collections.abc import Iterator

DIFFICULT = (
    "",
    " ",
    " \t\n ",
    "Hello, world!",
    "  two  spaces, and one behind ",
    "line\nbreaks\r\nand\n\n\nempty lines\n",
    "tab\tnew\nreturn\r\u00a0\u3000ideographic\u2028separated",
    "don't I'll WE'RE you've 'tis rock'n'roll",
    "“quotes” — and … dashes–like • this",
    "naïve café ÀÉÎÕÜ, cafe\u0301 n\u0303 A\u030a",
    "İstanbul ıI ß ẞ ﬁ ﬀ Å Ω K",
    "ÅÆØ åæø Łódź Đặng đ ŉ ǅ",
    "ΣΊΣΥΦΟΣ ὈΔΥΣΣΕΎΣ άέή",
    "ПРИВЕТ, мир! ёлка Йод їжак",
    "中文字符 and english, 汉字。㐀 𠀀",
    "日本語テキスト ひらがな ガギグ ﾊﾟ",
    "한국어 텍스트 각 ᄀ",
    "हिन्दी में लिखा, বাংলা, தமிழ், ไทย",
    "مرحبا بالعالم، שלום עולם, فارسی‌ها",
    "👨\u200d👩\u200d👧 family 👍🏽 🏳️\u200d🌈 🇫🇷 hello😀there",
    "zero\u200bwidth\u200djoiner soft\u00adhyphen \ufeffmark",
    "private \ue000use\U0010fffd \ufffd\ufffe \u0378 \x01\x7f\x85",
    "1234567 3.14159 1,000,000 ½ ² ③ Ⅳ ٣ 10⁻³ 0x1F",
    "$%^&*()_+~`<>|\\/{}[]#@=^^-- €£¥₿ ©®™ °",
    "def f(x):\n    return x ** 2  # comment\n\n",
    "https://example.org/a?b=c&d=%20#e user@example.org",
    "unaffable uncharacteristically qwzxv☃jk antidisestablishmentarianism",
    "a" * 99 + " " + "b" * 100 + " " + "c" * 101,
    "x" * 300,
    "\u2581under \u0120G ##pieces ## #",
    "𝒜𝓁𝓅𝒽𝒶 ｆｕｌｌｗｉｄｔｈ ℌ ℵ",
    "e\u0301\u0302\u0303 \u0301alone \u302ex\u0304",
)
"""Spaces, punctuation, accents, scripts, emoji, control characters, numbers, long words."""


# Where characters differ from their neighbours: without most of Chinese, Korean and what is not assigned.
_VARIED = ((0x1, 0x3500), (0x9F00, 0xAD00), (0xD700, 0xD800), (0xE000, 0xE010), (0xF8F0, 0x17000), (0x1B000, 0x20010))
_AT_ONCE = 256


def of_every_kind() -> Iterator[str]:
    """Texts with some 60,000 characters, each by itself, twice, and between a letter and a digit."""
    for start, end in _VARIED:
        for first in range(start, end, _AT_ONCE):
            block = map(chr, range(first, min(first + _AT_ONCE, end)))
            yield " ".join(f"a{character}1 {character}{character}" for character in block)
