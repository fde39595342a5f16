"""How a list goes on, and that nothing but the provider's own word is its end."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from idem.outbox.domain.contract import FrozenRequest
from idem.outbox.providers.pages import BrokenList, NextPage, Paging, with_parameter
from idem.outbox.providers.response import Document

FIRST = FrozenRequest("GET", "/v1/events?limit=2&a%5Bb%5D=1", {"accept": "application/json"}, b"")
ORIGINS = ("https://api.example", "http://127.0.0.1:8080")
ITEMS = [{"id": "a"}, {"id": "b 2"}]


def following(
    paging: Paging, body: Any = None, items: Any = None, request: FrozenRequest = FIRST, **headers: str
) -> Any:
    return paging.following(Document(200, headers, body or {}), ITEMS if items is None else items, request, ORIGINS)


def paging(parameter: str, cursor: str, **more: Any) -> Paging:
    return Paging(style="cursor", parameter=parameter, next=(cursor,), **more)


AFTER = Paging(style="after_id", parameter="starting_after", more=("has_more",))
CURSOR = Paging(style="cursor", parameter="cursor", next=("cursor",))
LINK = Paging(style="link")
NEXT = Paging(style="link", next=("links", "next"))
OFFSET = Paging(style="offset", parameter="offset")


@pytest.mark.parametrize(
    ("paging", "body", "path"),
    [
        (AFTER, {"has_more": True}, "/v1/events?limit=2&a%5Bb%5D=1&starting_after=b%202"),
        (AFTER, {"has_more": False}, None),
        (Paging(style="after_id", parameter="after", id=("x", "id")), {}, "broken"),
        (CURSOR, {"cursor": "x/&=1"}, "/v1/events?limit=2&a%5Bb%5D=1&cursor=x%2F%26%3D1"),
        (CURSOR, {"cursor": 7}, "/v1/events?limit=2&a%5Bb%5D=1&cursor=7"),
        (CURSOR, {"cursor": None}, None),
        (CURSOR, {"cursor": ""}, None),
        (CURSOR, {}, None),
        (CURSOR, {"cursor": {"a": 1}}, "broken"),
        (CURSOR, {"cursor": True}, "broken"),
        (CURSOR, {"cursor": "x" * 5000}, "broken"),
        (paging("page[after]", "c"), {"c": "z"}, "/v1/events?limit=2&a%5Bb%5D=1&page%5Bafter%5D=z"),
        (OFFSET, {}, "/v1/events?limit=2&a%5Bb%5D=1&offset=2"),
        (Paging(style="offset", parameter="page", step="pages", first=1), {}, "/v1/events?limit=2&a%5Bb%5D=1&page=2"),
        (Paging(style="offset", parameter="limit"), {}, "/v1/events?a%5Bb%5D=1&limit=4"),
        (
            NEXT,
            {"links": {"next": "https://API.example:443/v1/events?page[after]=2#x"}},
            "/v1/events?page%5Bafter%5D=2",
        ),
        (NEXT, {"links": {"next": "/v2/more"}}, "/v2/more"),
        (NEXT, {"links": {"next": "?p=2"}}, "/v1/events?p=2"),
        (NEXT, {"links": {"next": None}}, None),
        (NEXT, {"links": {"next": 3}}, "broken"),
        (NEXT, {"links": {"next": "https://evil.example/v1/events?p=2"}}, "broken"),
        (NEXT, {"links": {"next": "//evil.example/v1/events?p=2"}}, "broken"),
        (NEXT, {"links": {"next": "http://api.example/v1/events?p=2"}}, "broken"),
        (NEXT, {"links": {"next": "https://api.example:8443/v1/events?p=2"}}, "broken"),
        (NEXT, {"links": {"next": "https://me:pw@api.example/v1/events?p=2"}}, "broken"),
        (NEXT, {"links": {"next": "https://[api/x"}}, "broken"),
        (NEXT, {"links": {"next": "javascript:alert(1)"}}, "broken"),
        (NEXT, {"links": {"next": "/v1/%zz"}}, "broken"),
        (NEXT, {"links": {"next": "https://api.example//evil.example/"}}, "broken"),
    ],
)
def test_the_next_page(paging: Paging, body: Any, path: str | None) -> None:
    if path == "broken":
        with pytest.raises(BrokenList):
            following(paging, body)
        return
    page = following(paging, body)
    assert (page and page.path) == path
    if page is not None:
        assert (page.first, page.number, page.method, page.headers) == (FIRST.path, 2, "GET", FIRST.headers)


@pytest.mark.parametrize(
    ("header", "path"),
    [
        ('<https://api.example/v1/events?page=2>; rel="next", <https://api.example/v1/events?page=9>; rel="last"',
         "/v1/events?page=2"),
        ("</v1/events?page=2>; rel=next", "/v1/events?page=2"),
        ('<?page=2>;title="a, \\"b\\"; rel=x" ; REL="prefetch NEXT"', "/v1/events?page=2"),
        ('<?page=1>; rel="prev"', None),
        ('<?page=2>; rel="prev"; rel="next"', None),
        ('<?page=2>; rel="next"; anchor="/other"', None),
        ("", None),
        ('<?page=2>; rel="next", <?page=3>; rel="next"', "broken"),
        ('<?page=2>; rel="next", <?page=2>; rel="next"', "/v1/events?page=2"),
        ("page=2; rel=next", "broken"),
        ("<?page=2; rel=next", "broken"),
        ('<https://evil.example/>; rel="next"', "broken"),
    ],
)  # fmt: skip
def test_the_link_header(header: str, path: str | None) -> None:
    if path == "broken":
        with pytest.raises(BrokenList):
            following(LINK, link=header)
    else:
        page = following(LINK, link=header)
        assert (page and page.path) == path


@pytest.mark.parametrize("body", [{}, {"has_more": "true"}, {"has_more": None}, {"has_more": 1}])
def test_a_list_that_does_not_say_whether_it_goes_on_has_no_end(body: Any) -> None:
    with pytest.raises(BrokenList, match="/has_more"):
        following(AFTER, body)


@pytest.mark.parametrize(
    "paging", [AFTER, Paging(style="offset", parameter="o", more=("has_more",)), paging("c", "c", more=("has_more",))]
)
def test_an_empty_page_is_no_end_where_the_list_says_that_it_goes_on(paging: Paging) -> None:
    with pytest.raises(BrokenList, match="but not where"):
        following(paging, {"has_more": True}, [])


@pytest.mark.parametrize("paging", [Paging(style="after_id", parameter="after"), OFFSET])
def test_an_empty_page_is_the_end_where_nothing_else_could_be(paging: Paging) -> None:
    assert following(paging, items=[]) is None


def test_the_number_grows_from_page_to_page() -> None:
    second = following(OFFSET)
    third = following(OFFSET, request=second)
    assert (third.path, third.number, third.first) == ("/v1/events?limit=2&a%5Bb%5D=1&offset=4", 3, FIRST.path)
    with pytest.raises(BrokenList, match="not a number"):
        following(OFFSET, request=FrozenRequest("GET", "/v1?offset=abc", {}, b""))


def test_a_list_is_read_so_far_and_no_farther() -> None:
    short = Paging(style="offset", parameter="offset", most=2)
    second = following(short)
    with pytest.raises(BrokenList, match="longer than the 2 pages"):
        following(short, request=second)
    assert following(short, items=[], request=second) is None, "the last page may be the last that is read"


def test_a_page_that_leads_to_itself_or_to_the_first_is_a_circle() -> None:
    with pytest.raises(BrokenList, match="circular"):
        following(NEXT, {"links": {"next": FIRST.path}})
    page = NextPage("GET", "/v1/events?p=5", {}, b"", FIRST.path, 5)
    for again in (FIRST.path, page.path):
        with pytest.raises(BrokenList, match="circular"):
            following(NEXT, {"links": {"next": again}}, request=page)


def test_a_parameter_takes_the_place_of_what_it_was_and_nothing_else_changes() -> None:
    assert with_parameter("/p", "a", "1") == "/p?a=1"
    assert with_parameter("/p?x=%2f&a=0&y", "a", "1 2") == "/p?x=%2f&y&a=1%202"
    assert with_parameter("/p?a%5Bb%5D=0", "a[b]", "é") == "/p?a%5Bb%5D=%C3%A9"


@given(
    st.sampled_from([AFTER, CURSOR, LINK, NEXT, OFFSET, paging("c", "cursor", more=("has_more",))]),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.sampled_from(["/x", "https://a.b/c"]),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["id", "has_more", "cursor", "links", "next"]), inner, max_size=5)
        ),
        max_leaves=8,
    ),
    st.lists(st.none() | st.dictionaries(st.just("id"), st.text() | st.integers(), max_size=1), max_size=3),
    st.text(alphabet='<>;,="\\ relnxt/?.a', max_size=40),
)
def test_whatever_a_page_says_it_leads_to_a_path_that_can_be_asked_or_nowhere(
    paging: Paging, body: Any, items: Any, link: str
) -> None:
    try:
        page = paging.following(Document(200, {"link": link}, body), items, FIRST, ORIGINS)
    except BrokenList:
        return
    assert page is None or (page.path.startswith("/") and not page.path.startswith("//") and page.path.isascii())
