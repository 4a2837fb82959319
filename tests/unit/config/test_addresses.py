import pytest

from pilothouse.config.addresses import check_origin, check_upstream_url, parse_listen


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:8080", "127.0.0.1", 8080),
        ("0.0.0.0:0", "0.0.0.0", 0),
        ("localhost:65535", "localhost", 65535),
        ("a-host.example.com:80", "a-host.example.com", 80),
        ("[::1]:8080", "::1", 8080),
        ("[fe80::1%eth0]:1", "fe80::1%eth0", 1),
    ],
)
def test_listen_addresses_are_read_and_written_alike(text: str, host: str, port: int) -> None:
    address = parse_listen(text)
    assert (address.host, address.port) == (host, port)
    assert str(address) == text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (":8080", "127.0.0.1:8080 for this machine, 0.0.0.0:8080 for every network"),
        ("::1:8080", "goes into brackets"),
        ("8080", "must be HOST:PORT"),
        ("127.0.0.1", "must be HOST:PORT"),
        ("127.0.0.1:", "must be HOST:PORT"),
        ("127.0.0.1:http", "must be HOST:PORT"),
        ("127.0.0.1:-1", "must be HOST:PORT"),
        ("127.0.0.1:\uff18\uff10", "must be HOST:PORT"),
        ("127.0.0.1:80\n", "must be HOST:PORT"),
        ("127.0.0.1:65536", "between 0 and 65535"),
        ("127.0.0.1:100000000080", "between 0 and 65535"),
        ("127.0.0.1:99999999999999999999", "between 0 and 65535"),
        ("300.0.0.1:80", "neither an IPv4 address nor the name of a host"),
        ("127.0.0.01:80", "neither an IPv4 address nor the name of a host"),
        ("127.1:80", "neither an IPv4 address nor the name of a host"),
        ("a_b:80", "neither an IPv4 address nor the name of a host"),
        ("-a:80", "neither an IPv4 address nor the name of a host"),
        ("[127.0.0.1]:80", "not an IPv6 address"),
        ("[]:80", "not an IPv6 address"),
        ("", "must be HOST:PORT"),
    ],
)
def test_other_listen_addresses_are_explained(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words.replace("(", r"\(")):
        parse_listen(text)


@pytest.mark.parametrize(
    "url",
    [
        "https://api.example.com/v1",
        "http://127.0.0.1:8000",
        "http://10.0.0.7:8000/openai/",
        "http://[::1]:8000/v1",
        "http://[fd00::1]/v1",
        "https://EXAMPLE.com",
    ],
)
def test_upstreams_may_be_anywhere_but_at_metadata(url: str) -> None:
    check_upstream_url(url)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("ftp://example.com", "http:// or https://"),
        ("example.com/v1", "http:// or https://"),
        ("http://", "http:// or https://"),
        ("https://user:hunter2@example.com/v1", "credentials"),
        ("https://hunter2@example.com/v1", "credentials"),
        ("https://example.com/v1?key=hunter2", "without a query"),
        ("https://example.com/v1#hunter2", "without a query"),
        ("https://example.com/v1?", "without a query"),
        ("https://example.com:0/", "port 0"),
        ("https://example.com:hunter2/", "not a URL"),
        ("https://example.com:99999/", "not a URL"),
        ("https://[::1/", "not a URL"),
        ("https://exa mple.com/", "spaces"),
        ("https://example.com/\r\nx", "spaces"),
        ("https://exämple.com/", "beyond ASCII"),
        ("https://example.com\\evil.com/", "neither an address nor a name"),
        ("https://a_b/", "neither an address nor a name"),
        ("http://169.254.169.254/latest", "metadata"),
        ("http://169.254.0.1", "metadata"),
        ("http://[fe80::1]/", "metadata"),
        ("http://[fe80::1%25eth0]/", "metadata"),
        ("http://[::ffff:169.254.169.254]/", "metadata"),
        ("http://[fd00:ec2::254]/", "metadata"),
        ("http://100.100.100.200/", "metadata"),
        ("http://metadata.google.internal/", "metadata"),
        ("http://METADATA.google.internal./", "metadata"),
        ("http://2852039166/", "neither an address nor a name"),
        ("http://0xA9FEA9FE/", "neither an address nor a name"),
        ("http://0251.0376.0251.0376/", "neither an address nor a name"),
        ("http://169.254.43518/", "neither an address nor a name"),
        ("http://169.254.169.254./", "neither an address nor a name"),
    ],
)
def test_other_upstreams_are_refused_without_repeating_them(url: str, words: str) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        check_upstream_url(url)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "origin",
    ["*", "https://a.example", "http://localhost:3000", "http://127.0.0.1:8000", "https://[::1]:8443", "http://[::1]"],
)
def test_origins_are_as_browsers_send_them(origin: str) -> None:
    check_origin(origin)


@pytest.mark.parametrize(
    "origin",
    [
        *("", "a.example", "null", "https://", "ftp://a.example", "https://a b", "http://[::g]", "https://*.example"),
        *("https://a.example/", "https://a.example/x", "https://A.example", "https://a.example:443"),
        "http://a.example:80",
    ],
)
def test_what_no_browser_sends_is_no_origin(origin: str) -> None:
    with pytest.raises(ValueError, match=r"origin|port"):
        check_origin(origin)
