import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepsiam.data_prep.text.scrub import EMAIL, IP, PHONE, scrub

pytest.importorskip("phonenumbers", reason="needs the packages of the extra `dumps`")


@pytest.mark.parametrize(
    "number",
    [
        "(415) 555-2671",
        "415-555-2671",
        "415.555.2671",
        "4155552671",
        "+14155552671",
        "+44 20 7946 0958",
        "+49 30 901820",
    ],
)
def test_a_phone_number_is_replaced(number: str) -> None:
    assert scrub(f"Call {number}, or come.") == f"Call {PHONE}, or come."


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Write to a.b+c@mail.example.co.uk.", f"Write to {EMAIL}."),
        ("<me@example.org> or you@example.org", f"<{EMAIL}> or {EMAIL}"),
        ("ping 8.8.8.8, then 2001:4860:4860::8888", f"ping {IP}, then {IP}"),
        ("me" * 500_000 + "@example.org", EMAIL),  # would take an hour if the time were quadratic
        ("me" * 500_000 + "@" + "b-" * 500_000, "me" * 500_000 + "@" + "b-" * 500_000),
        ("8.8.8.8 and 415-555-2671 of me@example.org", f"{IP} and {PHONE} of {EMAIL}"),
    ],
)
def test_addresses_are_replaced(text: str, expected: str) -> None:
    assert scrub(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "At 12:30:45 it was 192.168.0.1 or 127.0.0.1, not 300.1.1.1 nor v1.2.3.4 nor linux-2.6.8.1-3.",
        "ISBN 0-471-95869-7, 978-3-16-148410-0; from 1914 to 1918; 1,234,567,890 people; 3108.204701 seconds.",
        "Kernel 2.6.8.1 and driver: 71.84.11.2, as of version 8.8.8.8",
        "@you, see x@y and 3 @ 4.",
        "",
    ],
)
def test_other_numbers_and_words_stay(text: str) -> None:
    assert scrub(text) == text


@given(st.text(st.characters(exclude_categories=["N"], exclude_characters="@:")))
def test_text_without_numbers_and_addresses_stays(text: str) -> None:
    assert scrub(text) == text
