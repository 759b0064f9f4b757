from pegasus.testing.provider.prompt_cache import PromptCache, common_prefix


def test_what_stands_the_same_from_the_beginning_on_is_cached():
    cache = PromptCache()
    cache.send(b"abcd", "a")
    cache.send(b"abcdefgh", "a")
    assert (cache.sent, cache.cached, cache.share) == (8, 4, 0.5)


def test_a_change_at_the_beginning_leaves_nothing():
    cache = PromptCache()
    cache.send(b"abcd", "a")
    cache.send(b"xbcd", "a")
    assert cache.share == 0


def test_the_marker_that_moves_is_no_part_of_the_prompt():
    cache, marker = PromptCache(), b',"cache_control":{"type":"ephemeral"}'
    cache.send(b"abcd" + marker, "a")
    cache.send(b"abcdefgh" + marker, "a")
    assert cache.share == 0.5


def test_a_session_that_begins_is_not_counted_but_one_whose_first_turn_grows_is():
    cache = PromptCache()
    for opening in ("a", "a and more", "b"):
        cache.send(b"abcd", opening)
    assert (cache.fresh, cache.sent, cache.cached) == (2, 4, 4)


def test_common_prefix():
    assert [common_prefix(*pair) for pair in ((b"", b"a"), (b"ab", b"ac"), (b"ab", b"abc"), (b"x", b"y"))] == [
        0,
        1,
        2,
        0,
    ]
