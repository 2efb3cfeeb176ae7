"""Conversations as transformers renders them by chat templates that use what Jinja and transformers offer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jinja2 import TemplateError
from transformers.utils.chat_template_utils import render_jinja_template

# Each is written for this file, in the ways in which published templates are written.
TEMPLATES = {
    "one line": "{% for m in messages %}{{ '[' + m['role'] + '] ' + m['content'] + eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '[assistant]' }}{% endif %}",
    "blocks on lines of their own": """{{ bos_token }}
{% for message in messages %}
    {% if message.role == 'user' %}
User: {{ message.content | trim }}
    {% elif message.role == 'assistant' %}
Assistant: {{ message.content | trim }}{{ eos_token }}
    {% else %}
        {{ raise_exception('no place for the role ' ~ message.role) }}
    {% endif %}
{% endfor %}
{%- if add_generation_prompt %}
Assistant:
{%- endif %}
""",
    "a system message first, and turns that alternate": """
{%- if messages[0]['role'] == 'system' %}
    {%- set system = messages[0]['content'] %}
    {%- set turns = messages[1:] %}
{%- else %}
    {%- set system = none %}
    {%- set turns = messages %}
{%- endif %}
{%- for turn in turns %}
    {%- if (turn['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('Roles must alternate: user, assistant, user, ...') }}
    {%- endif %}
    {%- if loop.first and system is not none %}
        {{- '<<' ~ system ~ '>>\\n' }}
    {%- endif %}
    {{- turn['role'][0] | upper ~ ':' ~ turn['content'].strip() ~ ('\\n' if not loop.last else '') }}
{%- endfor %}""",
    "loops that break and continue": """{% for m in messages %}{% if m.role == 'system' %}{% continue %}{% endif -%}
{{ loop.index }}:{{ m.content }};{% if loop.index >= 3 %}{% break %}{% endif %}{% endfor %}""",
    "json": "{{ messages | tojson }}|{{ {'a': [1, 2.5, none, true], 'é': '<&>\\'\"'} | tojson(indent=2) }}"
    "|{{ messages | map(attribute='role') | list | tojson }}|{{ {'b': 1, 'a': 2} | tojson(sort_keys=true) }}",
    "a namespace and a macro": """{%- set ns = namespace(count=0, last='') -%}
{%- macro turn(m, mark='#') -%}{{ mark }}{{ m.role }} {{ m.content }}{%- endmacro -%}
{%- for m in messages -%}
{%- set ns.count = ns.count + 1 -%}{%- set ns.last = m.role -%}
{{ turn(m) }}{{ '\\n' }}
{%- endfor -%}
{{ ns.count }} {{ ns.last }} {{ turn(messages[-1], mark='=') }}""",
    "marks for training": """{% for m in messages %}{% if m.role == 'assistant' %}
{% generation %}
<{{ m.content }}>
{% endgeneration %}
{% else %}
({{ m.content }})
{% endif %}{% endfor %}""",
    "what is not defined": "{% if tools %}tools{% endif %}{% if tools is not none %}some{% endif %}{{ nothing }}"
    "{% if nothing is defined %}x{% endif %}{{ documents is none }}{{ messages[0].name }}{{ pad_token }}",
    "it takes what is not there": "{{ messages[0].name.first }}",
    "it does not parse": "{% for m in messages %}{{ m.content }}",
    "it changes the conversation": "{{ messages.append({'role': 'user'}) }}",
    "out of the sandbox": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
}
# Each with whether the text ends with what precedes an answer.
CONVERSATIONS = [
    ([{"role": "user", "content": "Hello!"}], True),
    (
        [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "  Who wrote <Faust> & 'Egmont'?\n"},
            {"role": "assistant", "content": "Goethe. 東京 é 👩\u200d👩\u200d👧\n\n"},
            {"role": "user", "content": "{{ 1 + 1 }} {% raw %}"},
        ],
        True,
    ),
    ([{"role": "user", "content": ""}, {"role": "user", "content": "again"}], False),
]
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}


def store_all(folder: Path) -> None:
    """Write the conversations, and what each template makes of each."""
    folder.mkdir(parents=True, exist_ok=True)
    asked: list[dict[str, Any]] = [
        {"messages": messages, "add_generation_prompt": prompt} for messages, prompt in CONVERSATIONS
    ]
    templates = [
        {"name": name, "template": template, "results": [result(template, **conversation) for conversation in asked]}
        for name, template in TEMPLATES.items()
    ]
    content = {"special_tokens": SPECIAL, "conversations": asked, "templates": templates}
    (folder / "cases.json").write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def result(template: str, messages: list[dict[str, str]], add_generation_prompt: bool) -> dict[str, Any]:
    """The text, or the error's message."""
    try:
        (text,), _ = render_jinja_template(
            [messages], chat_template=template, add_generation_prompt=add_generation_prompt, **SPECIAL
        )
    except TemplateError as error:
        return {"error": error.message}
    return {"text": text}
