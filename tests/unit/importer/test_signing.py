"""Signatures for object stores, compared with an example and an independent verifier."""

from __future__ import annotations

from datetime import UTC, datetime

from importer import signing

KEYS = signing.Keys("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
THEN = datetime(2013, 5, 24, tzinfo=UTC)


def test_the_signature_is_that_of_the_documentations_example() -> None:
    """https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html: GET Object."""
    found = signing.headers(KEYS, "us-east-1", "examplebucket.s3.amazonaws.com", "/test.txt", THEN, {"Range": "bytes=0-9"})

    assert found["Authorization"] == (
        "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,"
        "SignedHeaders=host;range;x-amz-content-sha256;x-amz-date,"
        "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
    )
    assert found["x-amz-date"] == "20130524T000000Z"


def test_a_session_is_signed_and_sent() -> None:
    keys = signing.Keys("a", "s", "token")
    found = signing.headers(keys, "eu-1", "h", "/b/k", THEN)

    assert found["x-amz-security-token"] == "token"
    assert "x-amz-security-token," in found["Authorization"]


def test_paths_are_encoded_as_stores_expect() -> None:
    assert signing.path_of("bucket", "a b/ä?+~=.img") == "/bucket/a%20b/%C3%A4%3F%2B~%3D.img"
