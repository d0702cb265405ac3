"""Exact algebra for answers: polynomials with fractional exponents, each with one printed form. No floats.

A polynomial is a dict {monomial: Fraction}, a monomial a frozenset of (atom, exponent); exponents are Fractions and may
be negative. Three facts make the form unique where it matters: a root of a number is split into roots of primes,
sqrt(12) = 2 * 3^(1/2); the imaginary unit obeys i^2 = -1; products of sums are multiplied out. Atoms are
    int        a prime (or a number that we cannot factor) under a root, its exponent between 0 and 1
    "i"        the imaginary unit, exponent 1
    other str  the printed name of a variable, of a function applied to something, or of a power such as 2^n
    frozenset  the items of a polynomial under a negative or fractional power, such as (x+1)^(-1)
What would be too large raises Unreadable: completions are untrusted (9^{9^{9^9}}). Incomplete on purpose: fractions of
sums are not cancelled, nested roots and identities of functions are not used. So some equal expressions print
differently, but different ones never print the same.
"""

from fractions import Fraction
from functools import lru_cache
from math import floor, gcd, isqrt, lcm

MAX_BITS = 3000  # of any numerator or denominator, about 900 digits
MAX_PAIRS = 500  # of terms in one multiplication
ONE = frozenset()  # the empty monomial


class Unreadable(ValueError):
    """This has no reading as mathematics here, or is too large."""


def constant(value):
    """The polynomial that is this number; zero has no terms."""
    return {ONE: Fraction(value)} if value else {}


def as_number(p):
    """The value of a constant polynomial, else None."""
    return p.get(ONE, Fraction(0)) if set(p) <= {ONE} else None


def atom(name, exponent=1):
    """The polynomial name^exponent: one term, coefficient 1."""
    return {frozenset({(name, Fraction(exponent))}): Fraction(1)}


# ---- Arithmetic. ----


def add(a, b, sign=1):
    """a + sign * b."""
    total = dict(a)
    for monomial, c in b.items():
        total[monomial] = total.get(monomial, 0) + sign * c
    return {monomial: _bounded(c) for monomial, c in total.items() if c}


def multiply(a, b):
    """Product of two polynomials. Raises Unreadable where it would have too many terms."""
    if len(a) * len(b) > MAX_PAIRS:
        raise Unreadable
    total = {}
    for monomial_a, c_a in a.items():
        for monomial_b, c_b in b.items():
            exponents = dict(monomial_a)
            for atom, e in monomial_b:
                exponents[atom] = exponents.get(atom, 0) + e
            for monomial, c in _product(exponents, c_a * c_b).items():
                total[monomial] = total.get(monomial, 0) + c
    return {monomial: _bounded(c) for monomial, c in total.items() if c}


def _bounded(c):
    if max(c.numerator.bit_length(), c.denominator.bit_length()) > MAX_BITS:
        raise Unreadable
    return c


def number_power(c, e):
    """The Fraction c to the whole power e; the size is checked before the power is taken."""
    if (not c and e <= 0) or max(abs(c.numerator).bit_length() - 1, c.denominator.bit_length() - 1) * abs(e) > MAX_BITS:
        raise Unreadable
    return c**e


def _product(exponents, c):
    """c times the product of atom^exponent in normal form: 2^(3/2) = 2 * 2^(1/2), i^2 = -1, ((x+1)^(1/2))^2 = x+1."""
    kept, sums = {}, []
    for atom, e in exponents.items():
        if isinstance(atom, int):
            c *= number_power(Fraction(atom), floor(e))
            e -= floor(e)
        elif atom == "i":
            c *= -1 if e % 4 >= 2 else 1
            e %= 2
        elif isinstance(atom, frozenset) and e.denominator == 1:
            base = dict(atom)
            if e > 0 or len(base) == 1 or _has_conjugate(base):
                sums.append(power(base, e))
                e = 0
        if e:
            kept[atom] = e
    result = {frozenset(kept.items()): c}
    for factor in sums:
        result = multiply(result, factor)
    return result


def _has_conjugate(p):
    """Whether p is made of numbers, square roots and i alone, so that 1/p can be written without a denominator."""
    return all(atom == "i" or (isinstance(atom, int) and 2 * k == 1) for monomial in p for atom, k in monomial)


def power(p, e):
    """p to the power e, a Fraction. Odd roots of negative numbers are real; their square roots have i."""
    whole = e.denominator == 1
    if not p or e == 0:
        if not p and e <= 0:
            raise Unreadable
        return constant(1) if p else {}
    if whole and len(p) == 1:
        ((monomial, c),) = p.items()
        return _product({atom: k * e for atom, k in monomial}, number_power(c, int(e)))
    if whole and e > 0:
        if len(p) * e > 60:
            raise Unreadable
        result = p
        for _ in range(int(e) - 1):
            result = multiply(result, p)
        return result
    if whole and e < -1:
        return power(power(p, Fraction(-1)), -e)
    if whole and _has_conjugate(p):  # 1 / (a + b r) = (a - b r) / (a^2 - b^2 r^2)
        r = next(atom for monomial in p for atom, _ in monomial)
        conjugate = {monomial: -c if r in dict(monomial) else c for monomial, c in p.items()}
        return multiply(conjugate, power(multiply(p, conjugate), e))
    content, rest = primitive(p, signed=whole or as_number(p) is not None)
    outside = constant(1 / content) if whole else _root(content, e)
    return outside if as_number(rest) == 1 else multiply(outside, atom(frozenset(rest.items()), e))


def primitive(p, signed=True):
    """(content, p / content), the latter with whole coefficients of gcd 1, the first one positive (if signed)."""
    content = Fraction(gcd(*(c.numerator for c in p.values())), lcm(*(c.denominator for c in p.values())))
    if signed and _terms(p)[0][1] < 0:
        content = -content
    return content, {monomial: c / content for monomial, c in p.items()}


def _root(c, e):
    """The number c to the power e, not a whole one, as a product of roots of primes."""
    if c < 0 and e.denominator > 2 and e.denominator % 2 == 0:
        raise Unreadable
    exponents, sign = {}, 1
    if c < 0 and e.denominator == 2:
        exponents["i"] = Fraction(e.numerator)
    elif c < 0:
        sign = (-1) ** (e.numerator % 2)
    for n, direction in ((abs(c.numerator), 1), (c.denominator, -1)):
        for prime, times in _factors(n):
            exponents[prime] = exponents.get(prime, 0) + direction * times * e
    return _product(exponents, Fraction(sign))


@lru_cache(maxsize=1024)
def _factors(n):
    """[(base, exponent)] whose product is n: primes below 1000, then what is left, unsplit unless it is a square."""
    found = []
    for p in range(2, 1000):
        times = 0
        while n % p == 0:
            n, times = n // p, times + 1
        if times:
            found.append((p, times))
        if p * p > n:
            break
    times = 1
    while n > 1 and isqrt(n) ** 2 == n:
        n, times = isqrt(n), times * 2
    return found + [(n, times)] * (n > 1)


# ---- Printing. ----


def show(p):
    """The polynomial as text: one text per polynomial, and one that reads back as the same polynomial."""
    text = ""
    for name, c in _terms(p):
        size = str(abs(c))
        term = name if name and size == "1" else f"{size}*{name}" if name else size
        text += ("-" if c < 0 else "+" if text else "") + term
    return text or "0"


def _terms(p):
    """[(printed monomial, coefficient)] by falling degree, then by name."""
    terms = [(-sum(k for _, k in monomial), _show_monomial(monomial), c) for monomial, c in p.items()]
    return [(name, c) for _, name, c in sorted(terms)]


def _show_monomial(monomial):
    factors = []
    for atom, k in monomial:
        base = f"({show(dict(atom))})" if isinstance(atom, frozenset) else str(atom)
        factors.append(base if k == 1 else f"{base}^{k}" if k > 0 and k.denominator == 1 else f"{base}^({k})")
    return "*".join(sorted(factors))
