package cost

import (
	"maps"
	"math"
	"slices"
)

// poly is a polynomial with coefficients that are not negative. Nil is 0. It is not changed once it is shared.
type poly map[monomial]float64

// symbol is one of the Sizes, or a size of a value that a loop declares.
type symbol uint8

const (
	none symbol = iota
	objectBytes
	objectValues
	otherBytes
	otherValues
	// firstLocal is the first one of loops.
	firstLocal
	// lastLocal is the last one, and excess the only symbol of what has no bound.
	lastLocal symbol = 254
	excess    symbol = 255
)

// monomial is a product of symbols, the largest first.
type monomial [maxDegree]symbol

// A polynomial of a higher degree, or with more terms, is not worth its evaluation: it has no bound.
const (
	maxDegree = 4
	maxTerms  = 32
)

func unbounded() poly { return poly{monomial{excess}: 1} }

func (p poly) isUnbounded() bool {
	_, is := p[monomial{excess}]
	return is || len(p) > maxTerms
}

func constant(n float64) poly {
	if n == 0 {
		return nil
	}
	return poly{monomial{}: n}
}

func of(s symbol) poly { return poly{monomial{s}: 1} }

// plus returns the sum.
func plus(all ...poly) poly {
	sum := poly{}
	for _, p := range all {
		if p.isUnbounded() {
			return unbounded()
		}
		for m, times := range p {
			sum[m] += times
		}
	}
	return sum
}

// most returns a polynomial that is at least as large as each of two.
func most(a, b poly) poly {
	if a.isUnbounded() || b.isUnbounded() {
		return unbounded()
	}
	out := maps.Clone(a)
	if out == nil {
		out = poly{}
	}
	for m, times := range b {
		out[m] = max(out[m], times)
	}
	return out
}

// times returns the product.
func times(a, b poly) poly {
	if a.isUnbounded() || b.isUnbounded() {
		return unbounded()
	}
	out := poly{}
	for m, x := range a {
		for n, y := range b {
			product, ok := m.times(n)
			if !ok || len(out) > maxTerms {
				return unbounded()
			}
			out[product] += x * y
		}
	}
	return out
}

// scaled returns the product with a number.
func scaled(p poly, by float64) poly { return times(p, constant(by)) }

// times returns the product of two monomials, and false if its degree is too high.
func (m monomial) times(n monomial) (monomial, bool) {
	all := slices.Concat(m[:], n[:])
	slices.SortFunc(all, func(a, b symbol) int { return int(b) - int(a) })
	return monomial(all[:maxDegree]), all[maxDegree] == none
}

// smaller returns that one of two polynomials that is smaller for objects of usual size.
func smaller(a, b poly) poly {
	if a.usual() <= b.usual() {
		return a
	}
	return b
}

// usual is the value if all symbols are those of an object of usual size.
func (p poly) usual() float64 {
	const size = 1000
	sum := 0.0
	for m, times := range p {
		for _, s := range m {
			if s == excess {
				return math.Inf(1)
			}
			if s != none {
				times *= size
			}
		}
		sum += times
	}
	return sum
}

// replace returns the polynomial with polynomials in place of symbols.
func (p poly) replace(by map[symbol]poly) poly {
	var sum poly
	for m, n := range p {
		product := constant(n)
		for _, s := range m {
			if s == none {
				break
			}
			if instead, found := by[s]; found {
				product = times(product, instead)
			} else {
				product = times(product, of(s))
			}
		}
		sum = plus(sum, product)
	}
	return sum
}

// hasAny reports whether the polynomial has one of the symbols.
func (p poly) hasAny(symbols ...symbol) bool {
	for m := range p {
		if slices.ContainsFunc(symbols, func(s symbol) bool { return slices.Contains(m[:], s) }) {
			return true
		}
	}
	return false
}

// total returns a bound of the sum of the polynomial over the elements of a list, or the members of a map. The symbols
// of the one under way are those of its element, and of its key.
//
// A product of sizes of the elements, added up, is no larger than the product of the sums of the sizes: all are
// positive. The sizes of the elements together are those of the list. What has no size of the element in it is as
// often there as there are elements, and each of these counts among the values of the list, as does what is in it.
func (p poly) total(over Value, element, key loopSymbols) poly {
	if p.isUnbounded() {
		return unbounded()
	}
	by := map[symbol]poly{element.bytes: over.bytes, element.values: over.values, key.bytes: over.bytes, key.values: over.values}
	rest, repeated, inside := poly{}, poly{}, p[monomial{element.values}]
	for m, n := range p {
		switch {
		case poly{m: 1}.hasAny(element.bytes, element.values, key.bytes, key.values):
			rest[m] = n
		case m == monomial{}:
			// An element and all values inside of it are the values of the list: the larger factor covers both.
			repeated[m] = max(0, n-inside)
		default:
			repeated[m] = n
		}
	}
	return plus(rest.replace(by), times(repeated, over.values))
}
