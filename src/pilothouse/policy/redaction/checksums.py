"""Checksums of identifiers, each with its source."""

import hashlib

_BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_BECH32 = "qpzry9x8gf2tvdw0s3jn54khce6mua7l"
_BECH32_GENERATOR = (0x3B6A57B2, 0x26508E6D, 0x1EA119FA, 0x3D4233DD, 0x2A1462B3)


def luhn(digits: str) -> bool:
    """ISO/IEC 7812-1, annex B."""
    total = 0
    for index, digit in enumerate(reversed(digits)):
        value = int(digit)
        total += value if index % 2 == 0 else (value * 2 - 9 if value > 4 else value * 2)
    return total % 10 == 0


def mod97(iban: str) -> bool:
    """ISO 13616: the number, its first four characters moved to the end and letters as 10 to 35, is 1 modulo 97."""
    return int("".join(str(int(each, 36)) for each in iban[4:] + iban[:4])) % 97 == 1


def base58check(text: str) -> bytes | None:
    """The payload with its version byte, `None` if the checksum (double SHA-256, 4 bytes) is wrong. Bitcoin's form."""
    number = 0
    for character in text:
        digit = _BASE58.find(character)
        if digit < 0:
            return None
        number = number * 58 + digit
    zeros = len(text) - len(text.lstrip("1"))
    data = b"\0" * zeros + number.to_bytes((number.bit_length() + 7) // 8, "big")
    if len(data) < 5:
        return None
    payload, checksum = data[:-4], data[-4:]
    return payload if hashlib.sha256(hashlib.sha256(payload).digest()).digest()[:4] == checksum else None


def bech32(text: str) -> bool:
    """BIP 173 and BIP 350: the checksum of a segregated-witness address, in either version."""
    if text.lower() != text and text.upper() != text:
        return False
    prefix, _, data = text.lower().rpartition("1")
    values = [_BECH32.find(character) for character in data]
    if not prefix or len(values) < 6 or min(values) < 0:
        return False
    expanded = [ord(c) >> 5 for c in prefix] + [0] + [ord(c) & 31 for c in prefix] + values
    checksum = 1
    for value in expanded:
        top = checksum >> 25
        checksum = (checksum & 0x1FFFFFF) << 5 ^ value
        for bit in range(5):
            if top >> bit & 1:
                checksum ^= _BECH32_GENERATOR[bit]
    return checksum in (1, 0x2BC830A3)


def eip55(address: str) -> bool:
    """EIP-55: `0x` and 40 hexadecimal digits whose capitals encode a checksum; in one case only, there is none."""
    digits = address[2:]
    if digits in (digits.lower(), digits.upper()):
        return True
    digest = keccak256(digits.lower().encode()).hex()
    return all(
        character.isdigit() or character.isupper() == (int(nibble, 16) >= 8)
        for character, nibble in zip(digits, digest, strict=False)
    )


_ROUNDS = (
    0x0000000000000001, 0x0000000000008082, 0x800000000000808A, 0x8000000080008000, 0x000000000000808B,
    0x0000000080000001, 0x8000000080008081, 0x8000000000008009, 0x000000000000008A, 0x0000000000000088,
    0x0000000080008009, 0x000000008000000A, 0x000000008000808B, 0x800000000000008B, 0x8000000000008089,
    0x8000000000008003, 0x8000000000008002, 0x8000000000000080, 0x000000000000800A, 0x800000008000000A,
    0x8000000080008081, 0x8000000000008080, 0x0000000080000001, 0x8000000080008008,
)  # fmt: skip
_ROTATIONS = (
    (0, 36, 3, 41, 18), (1, 44, 10, 45, 2), (62, 6, 43, 15, 61), (28, 55, 25, 21, 56), (27, 20, 39, 8, 14),
)  # fmt: skip
_MASK = (1 << 64) - 1
_RATE = 136


def keccak256(data: bytes) -> bytes:
    """Keccak-256 as Ethereum has it: the padding of the submission (0x01), not that of SHA-3 (FIPS 202)."""
    padded = bytearray(data) + b"\x01" + b"\0" * (-(len(data) + 1) % _RATE)
    padded[-1] |= 0x80
    lanes = [[0] * 5 for _ in range(5)]
    for block in range(0, len(padded), _RATE):
        for index in range(_RATE // 8):
            word = int.from_bytes(padded[block + 8 * index : block + 8 * index + 8], "little")
            lanes[index % 5][index // 5] ^= word
        _permute(lanes)
    return b"".join(lanes[index % 5][index // 5].to_bytes(8, "little") for index in range(4))


def _permute(a: list[list[int]]) -> None:
    for constant in _ROUNDS:
        columns = [a[x][0] ^ a[x][1] ^ a[x][2] ^ a[x][3] ^ a[x][4] for x in range(5)]
        for x in range(5):
            mixed = columns[(x - 1) % 5] ^ _rotated(columns[(x + 1) % 5], 1)
            for y in range(5):
                a[x][y] ^= mixed
        b = [[0] * 5 for _ in range(5)]
        for x in range(5):
            for y in range(5):
                b[y][(2 * x + 3 * y) % 5] = _rotated(a[x][y], _ROTATIONS[x][y])
        for x in range(5):
            for y in range(5):
                a[x][y] = b[x][y] ^ (~b[(x + 1) % 5][y] & b[(x + 2) % 5][y] & _MASK)
        a[0][0] ^= constant


def _rotated(value: int, by: int) -> int:
    return (value << by | value >> 64 - by) & _MASK if by else value
