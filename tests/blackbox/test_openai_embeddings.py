"""`/v1/embeddings` by OpenAI's own client, with the model that the settings name."""

from __future__ import annotations

import openai
import pytest

from tests.blackbox.support import Book
from tests.blackbox.test_openai_chats import talking
from tests.embedding_server import embedding_server, vector_of

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of the client's generators


@pytest.mark.tried("clients", "OpenAI's embeddings: numbers and base64", "vectors of the model that models.embed names")
async def test_texts_become_vectors(tmp_path):
    with embedding_server() as server:
        settings = {
            "models.embed": "vec/small",
            "providers.vec.type": "openai",
            "providers.vec.base_url": server.url,
            "providers.vec.api_key": "k-12345678",
        }
        async with talking(tmp_path, Book(), settings) as (_, client):
            texts = ["a cup of tea", "茶"]
            for form in ("float", openai.omit):  # the client asks for base64 unless it is told
                made = await client.embeddings.create(model="any", input=texts, encoding_format=form)
                for vector, text in zip(made.data, texts, strict=True):
                    assert vector.embedding == pytest.approx(vector_of(text), abs=1e-6)
            assert made.model == "any"
            assert (await client.embeddings.create(model="any", input="one")).data[0].index == 0
            for input in ("", [], [[1, 2]], ["x", ""]):
                with pytest.raises(openai.BadRequestError, match="input"):
                    await client.embeddings.create(model="any", input=input)
            server.answer = lambda texts: (500, b"{}")
            with pytest.raises(openai.APIStatusError) as failure:
                await client.embeddings.create(model="any", input="tea")
            assert failure.value.status_code == 503
            assert server.refused == []


async def test_without_a_model_for_it_a_sentence_says_which_setting_is_missing(tmp_path):
    async with talking(tmp_path, Book()) as (_, client):
        with pytest.raises(openai.APIStatusError, match="the settings names one") as refusal:
            await client.embeddings.create(model="any", input="tea")
        assert refusal.value.status_code == 501
