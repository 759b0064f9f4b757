"""Requests whose end two servers could see at different places, in pieces of any size."""

import h11
import pytest

from pegasus.http_framing import has_body, refuse_ambiguous

HEAD = b"POST / HTTP/1.1\r\nHost: x\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"

REFUSED = {
    "length and chunks": HEAD + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks and length": HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
    "length and an unknown coding": HEAD + b"Content-Length: 4\r\nTransfer-Encoding: xchunked\r\n\r\nabcd",
    "two lengths": HEAD + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    "the same length twice": HEAD + b"Content-Length: 1\r\ncontent-length: 1\r\n\r\na",
    "a list of lengths": HEAD + b"Content-Length: 1, 1\r\n\r\na",
    "a signed length": HEAD + b"Content-Length: +1\r\n\r\na",
    "an empty length": HEAD + b"Content-Length: \r\n\r\n",
    "a hexadecimal length": HEAD + b"Content-Length: 0x1\r\n\r\na",
    "chunked and then identity": HEAD + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "chunked twice": HEAD + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    "chunked in two fields": HEAD + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "identity in a second field": HEAD + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    "an unknown coding": HEAD + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "a coding with a parameter": HEAD + b"Transfer-Encoding: chunked;q=1\r\n\r\n0\r\n\r\n",
    "a vertical tab before chunked": HEAD + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
    "no coding": HEAD + b"Transfer-Encoding:\r\n\r\n0\r\n\r\n",
    "chunks in HTTP/1.0": b"POST / HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a blank before the colon": HEAD + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "a folded line": HEAD + b"X: a\r\n b\r\n\r\n",
    "a folded coding": HEAD + b"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
    "a folded first line": b"GET / HTTP/1.1\r\n Host: x\r\n\r\n",
    "bare LF at each line": b"GET / HTTP/1.1\nHost: x\n\n",
    "bare LF at one line": b"GET / HTTP/1.1\r\nHost: x\nX: y\r\n\r\n",
    "bare LF at the end": b"GET / HTTP/1.1\r\nHost: x\r\n\n",
    "bare LF before a request": b"\nGET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "bare CR in a value": b"GET / HTTP/1.1\r\nHost: x\r\nX: a\rTransfer-Encoding: chunked\r\n\r\n",
    "bare CR behind a line": b"GET / HTTP/1.1\r\nHost: x\r\r\nX: y\r\n\r\n",
    "NUL in a value": b"GET / HTTP/1.1\r\nHost: x\r\nX: a\x00b\r\n\r\n",
    "a size with bare LF": CHUNKED + b"0\n\r\n\r\n",
    "an end with bare LF": CHUNKED + b"0\r\n\n",
    "a trailer with bare LF": CHUNKED + b"0\r\nX: y\n\n",
    "a folded trailer": CHUNKED + b"0\r\nX: y\r\n z\r\n\r\n",
    "bare CR in an extension": CHUNKED + b"0;a\rb\r\n\r\n",
    "bare LF in an extension": CHUNKED + b"0;a\nb\r\n\r\n",
    "a size with a sign": CHUNKED + b"+0\r\n\r\n",
    "a size with 0x": CHUNKED + b"0x0\r\n\r\n",
    "a size with a blank before it": CHUNKED + b" 0\r\n\r\n",
    "no size": CHUNKED + b"\r\n\r\n",
    "a size beyond 64 bits": CHUNKED + b"100000000000000000000\r\n\r\n",
    "a chunk without its end": CHUNKED + b"1\r\naXX0\r\n\r\n",
    "a chunk that ends with bare LF": CHUNKED + b"1\r\na\n0\r\n\r\n",
}
TAKEN = {
    "no body": b"GET / HTTP/1.1\r\nHost: x\r\nX: a\tb  c\r\n\r\n",
    "a length": HEAD + b"Content-Length: 3\r\n\r\na\nb",
    "chunks": CHUNKED + b"3\r\na\nb\r\n2;x=y\r\n\r\r\r\n0\r\nX-Sum: 7\r\n\r\n",
    "a coding in capitals": HEAD + b"transfer-encoding:  CHUNKED \r\n\r\n0\r\n\r\n",
    "a value that looks like framing": b"GET / HTTP/1.1\r\nHost: x\r\nX: Content-Length: 5\r\nContent-Length-X: 1\r\n\r\n",
}


def read(data, size):
    """Bodies of the requests in these bytes, which come in pieces of this size."""
    connection = h11.Connection(h11.SERVER)
    refuse_ambiguous(connection)
    bodies = []
    for at in range(0, len(data), size):
        connection.receive_data(data[at : at + size])
        while (event := connection.next_event()) is not h11.NEED_DATA:
            match event:
                case h11.Request():
                    bodies.append(b"")
                case h11.Data():
                    bodies[-1] += bytes(event.data)
                case h11.EndOfMessage():
                    connection.send(h11.Response(status_code=200, headers=[("content-length", "0")]))
                    connection.send(h11.EndOfMessage())
                    connection.start_next_cycle()
    return bodies


@pytest.mark.parametrize("size", [1, 7, 65_536])
@pytest.mark.parametrize("data", REFUSED.values(), ids=REFUSED)
def test_a_request_with_two_possible_ends_is_refused(data, size):
    with pytest.raises(h11.RemoteProtocolError):
        read(data + b"GET /hidden HTTP/1.1\r\nHost: x\r\n\r\n", size)


@pytest.mark.parametrize("size", [1, 7, 65_536])
def test_requests_with_one_end_follow_each_other(size):
    assert read(b"".join(TAKEN.values()), size) == [b"", b"a\nb", b"a\nb\r\r", b"", b""]


def test_a_body_is_announced_by_its_length_or_by_chunks():
    assert has_body([(b"host", b"x"), (b"transfer-encoding", b"chunked")])
    assert has_body([(b"content-length", b"10")])
    assert not has_body([(b"content-length", b"0")])
    assert not has_body([(b"host", b"x")])


def test_a_connection_that_has_read_something_is_too_late():
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(b"GET")
    with pytest.raises(ValueError, match="read something"):
        refuse_ambiguous(connection)
