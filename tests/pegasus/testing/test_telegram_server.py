"""The fake Telegram, held against the official client python-telegram-bot, which must work with it as with Telegram."""

import asyncio
import os

import pytest
import trio

from pegasus.testing.services.server import HANG_UP, every_other, json_response, open_service
from pegasus.testing.services.telegram import TOKEN, TelegramServer
from pegasus.testing.services.telegram_html import MarkupError, read_html

os.environ["PTB_TIMEDELTA"] = "1"  # read by the client; without it, it warns of a later version of itself
telegram = pytest.importorskip("telegram")

USER, GROUP = 42, -1001


async def with_client(server, work, token=TOKEN):
    """Run `work(bot)` with the official client, which needs asyncio and so a thread of its own."""

    async def run():
        bot = telegram.Bot(token, base_url=f"{server.base_url}/bot", base_file_url=f"{server.base_url}/file/bot")
        async with bot:
            return await work(bot)

    return await trio.to_thread.run_sync(lambda: asyncio.run(run()))


async def test_the_client_sends_edits_and_deletes():
    async def work(bot):
        assert (await bot.get_me()).username == "pegasus_bot"
        keyboard = telegram.InlineKeyboardMarkup([[telegram.InlineKeyboardButton("Yes", callback_data="y")]])
        sent = await bot.send_message(USER, "<b>hi</b> &amp; bye", parse_mode="HTML", reply_markup=keyboard)
        assert (sent.text, sent.entities[0].type, sent.chat.id) == ("hi & bye", "bold", USER)
        edited = await bot.edit_message_text("new", USER, sent.message_id)
        assert edited.text == "new"
        with pytest.raises(telegram.error.BadRequest, match=r"(?i)not modified"):
            await bot.edit_message_text("new", USER, sent.message_id)
        assert await bot.delete_message(USER, sent.message_id)
        assert await bot.send_chat_action(USER, "typing")
        assert await bot.set_my_commands([("stop", "end the work")])
        photo = await bot.send_photo(USER, b"\x89PNG", caption="a cat", filename="cat.png")
        document = await bot.send_document(USER, b"hello", filename="notes.txt", message_thread_id=7)
        return photo, document

    async with open_service(TelegramServer()) as server:
        photo, document = await with_client(server, work)
        assert photo.caption == "a cat"
        assert document.document.file_name == "notes.txt"
        assert server.messages[-1].file == ("document", "notes.txt", b"hello")
        assert server.messages[-1].thread_id == 7
        assert server.commands == [{"command": "stop", "description": "end the work"}]


async def test_the_client_gets_updates_files_and_clicks():
    async with open_service(TelegramServer()) as server:
        document = server.add_file(b"content", file_name="notes.txt", mime_type="text/plain")
        server.mention(GROUP, "hello", user=USER, is_topic_message=True, message_thread_id=9)
        server.say(USER, None, caption="read", document=document)

        async def work(bot):
            first, second = await bot.get_updates(timeout=1)
            assert first.message.parse_entity(first.message.entities[0]) == "@pegasus_bot"
            assert (first.message.chat.id, first.message.message_thread_id) == (GROUP, 9)
            file = await second.message.document.get_file()
            assert bytes(await file.download_as_bytearray()) == b"content"
            assert len(await bot.get_updates(offset=second.update_id)) == 1
            keyboard = telegram.InlineKeyboardMarkup([[telegram.InlineKeyboardButton("Yes", callback_data="y")]])
            await bot.send_message(USER, "?", reply_markup=keyboard)
            trio.from_thread.run_sync(lambda: server.click(server.messages[-1], "Yes", user=USER), trio_token=token)
            *_, update = await bot.get_updates(offset=second.update_id + 1, timeout=5)
            assert (update.callback_query.data, update.callback_query.from_user.id) == ("y", USER)
            assert await update.callback_query.answer("done")
            assert await bot.get_updates(offset=update.update_id + 1) == ()

        token = trio.lowlevel.current_trio_token()
        await with_client(server, work)
        assert [answer["text"] for answer in server.clicks.values()] == ["done"]


async def test_the_client_understands_what_the_fake_refuses():
    async with open_service(TelegramServer()) as server:
        server.blocked.add(1)
        server.unknown.add(2)
        server.moved[3] = -1003
        server.limits[4] = trio.current_time() + 30

        async def work(bot):
            error = telegram.error
            with pytest.raises(error.Forbidden, match=r"(?i)blocked by the user"):
                await bot.send_message(1, "x")
            with pytest.raises(error.BadRequest, match=r"(?i)chat not found"):
                await bot.send_message(2, "x")
            with pytest.raises(error.ChatMigrated) as moved:
                await bot.send_message(3, "x")
            assert moved.value.new_chat_id == -1003
            with pytest.raises(error.RetryAfter) as limited:
                await bot.send_message(4, "x")
            assert 25 <= limited.value._retry_after.total_seconds() <= 30
            for text in ("<b>", "<b><i></b></i>", "<script>", "<code><b>x</b></code>", "a < b", "</b>"):
                with pytest.raises(error.BadRequest, match=r"(?i)can.t parse entities"):
                    await bot.send_message(USER, text, parse_mode="HTML")
            with pytest.raises(error.BadRequest, match=r"(?i)too long"):
                await bot.send_message(USER, "😀" * 2049)
            await bot.send_message(USER, "😀" * 2048)
            with pytest.raises(error.BadRequest, match=r"(?i)empty"):
                await bot.send_message(USER, " ")
            await bot.set_webhook("https://agent.example/x", secret_token="s")
            assert (await bot.get_webhook_info()).url == "https://agent.example/x"
            with pytest.raises(error.Conflict):
                await bot.get_updates()
            assert await bot.delete_webhook()

        await with_client(server, work)
        with pytest.raises(telegram.error.InvalidToken):
            await with_client(server, telegram.Bot.get_me, token="1:wrong")


async def test_faults_of_the_network_look_like_that_to_the_client():
    async with open_service(TelegramServer()) as server:
        server.fault = every_other(json_response({"ok": False, "error_code": 502, "description": "Bad Gateway"}, 502))

        async def fails(bot):
            with pytest.raises(telegram.error.NetworkError):
                await bot.send_message(USER, "x")

        async def initialise(bot):
            return bot.id

        async def run():
            bot = telegram.Bot(TOKEN, base_url=f"{server.base_url}/bot")
            async with bot._request[1]:
                await fails(bot)

        await trio.to_thread.run_sync(lambda: asyncio.run(run()))
        assert await with_client(server, initialise)
        server.late_fault = lambda request: HANG_UP
        server.fault = lambda request: None
        await trio.to_thread.run_sync(lambda: asyncio.run(run()))
        assert len(server.messages) == 1, "it was heard, and its answer never came"


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("a &lt;b&gt; &amp; &quot;c&quot; &#233; &nbsp;", 'a <b> & "c" é &nbsp;'),
        ('<a href="https://e.org/?a=1&amp;b=2">x</a>', "x"),
        ('<pre><code class="language-py">x</code></pre>', "x"),
        ("<blockquote>q</blockquote>", "q"),
    ],
)
def test_html_is_read_as_telegram_reads_it(source, text):
    assert read_html(source)[0] == text


@pytest.mark.parametrize("source", ["<b>x", "x</b>", "<p>x</p>", "<b>x</i>", '<a href="">x</a>', "<br/>", "1 < 2"])
def test_html_that_telegram_refuses_is_refused(source):
    with pytest.raises(MarkupError):
        read_html(source)
