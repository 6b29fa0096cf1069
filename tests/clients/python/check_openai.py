"""Tests the official OpenAI client for Python with /v1/chat/completions.

Reads WARDGATE_URL and the token DOCTOR from the environment. Prints one line per check. The exit code is not 0 if a check failed.
"""

import os
import sys
import uuid
from urllib.parse import urljoin

import openai

BASE_URL = urljoin(os.environ["WARDGATE_URL"], "/v1")
RECORDS = "Show me NUGWI's medical records"


def client(token: str = os.environ["DOCTOR"]) -> openai.OpenAI:
    return openai.OpenAI(base_url=BASE_URL, api_key=token, max_retries=0, timeout=30)


def ask(message: str, **more):
    messages = [{"role": "user", "content": message}]
    return client().chat.completions.create(model="clinic", messages=messages, **more)


def the_models_are_the_assistants():
    assert sorted(model.id for model in client().models.list()) == ["careful", "clinic", "clinic-text"]


def an_answer_comes_from_what_the_tools_gave():
    chat_id = str(uuid.uuid4())
    answer = ask(RECORDS, extra_body={"chat_id": chat_id})
    assert answer.id.startswith("chatcmpl-"), answer
    assert answer.system_fingerprint == chat_id, answer
    assert "Lisinopril 10mg daily" in answer.choices[0].message.content, answer
    assert answer.choices[0].finish_reason == "stop", answer


def it_streams_with_the_usage_at_the_end():
    text, usage = "", None
    for chunk in ask(RECORDS, stream=True, stream_options={"include_usage": True}):
        if chunk.choices:
            text += chunk.choices[0].delta.content or ""
        usage = chunk.usage or usage
    assert "Lisinopril 10mg daily" in text, text
    assert usage.total_tokens > 0, usage


def a_conversation_goes_on_under_its_id():
    chat_id = str(uuid.uuid4())
    for _ in range(2):
        ask("hello", extra_body={"chat_id": chat_id})
    answer = ask(RECORDS, extra_body={"chat_id": chat_id})
    assert answer.system_fingerprint == chat_id, answer


def errors_are_of_its_own_kinds():
    for raising, call in [
        (openai.AuthenticationError, lambda: client("nonsense").models.list()),
        (openai.NotFoundError, lambda: client().chat.completions.create(model="nobody", messages=[{"role": "user", "content": "hello"}])),
        (openai.BadRequestError, lambda: client().chat.completions.create(model="clinic", messages=[])),
    ]:
        try:
            call()
        except raising:
            continue
        raise AssertionError(f"no {raising.__name__}")


failed = False
for check in [
    the_models_are_the_assistants,
    an_answer_comes_from_what_the_tools_gave,
    it_streams_with_the_usage_at_the_end,
    a_conversation_goes_on_under_its_id,
    errors_are_of_its_own_kinds,
]:
    promise = check.__name__.replace("_", " ")
    try:
        check()
        print(f"ok    openai python: {promise}")
    except Exception as error:
        failed = True
        print(f"FAIL  openai python: {promise}: {error!r}")
sys.exit(failed)
