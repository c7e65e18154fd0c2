// Package money owns amounts of money: currencies and their digits, and arithmetic in integers that rounds half away
// from zero, once.
//
// An amount is a whole number of a currency's smallest unit. Nothing here is a float, and what doesn't fit into 64 bits
// is an error, never a wrong amount.
package money

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/text/currency"
)

// Currency is an ISO 4217 code, such as EUR.
type Currency string

// digits of the currencies that don't have two (ISO 4217). CLDR, which other libraries ask, says how many are shown,
// which is not the same: it has none for the Iraqi dinar.
var digits = map[Currency]int{
	"BIF": 0, "CLP": 0, "DJF": 0, "GNF": 0, "ISK": 0, "JPY": 0, "KMF": 0, "KRW": 0, "PYG": 0, "RWF": 0, "UGX": 0, "VND": 0, "VUV": 0,
	"XAF": 0, "XOF": 0, "XPF": 0,
	"BHD": 3, "IQD": 3, "JOD": 3, "KWD": 3, "LYD": 3, "OMR": 3, "TND": 3,
}

// Most is the largest amount that anybody may ask for, in the currency's smallest unit.
const Most = 1_000_000_000_00

// ParseCurrency reads a code in capitals.
func ParseCurrency(s string) (Currency, error) {
	unit, err := currency.ParseISO(s)
	money := !strings.HasPrefix(s, "X") || slices.Contains([]string{"XAF", "XOF", "XPF", "XCD"}, s) // others are metals, funds and tests
	if err != nil || unit.String() != s || !money {
		return "", fmt.Errorf("%q is not a currency code such as EUR", s)
	}
	return Currency(s), nil
}

// Digits returns how many decimal places the smallest unit has.
func (c Currency) Digits() int {
	if n, ok := digits[c]; ok {
		return n
	}
	return 2
}

// ErrRange is returned where an amount doesn't fit into 64 bits.
var ErrRange = errors.New("the amount is too large")

// MulDiv returns q·num/den, rounded half away from zero. den must be positive.
func MulDiv(q, num, den int64) (int64, error) {
	if den <= 0 {
		return 0, fmt.Errorf("divide by %d: the divisor must be positive", den)
	}
	hi, lo := bits.Mul64(magnitude(q), magnitude(num))
	lo, carry := bits.Add64(lo, uint64(den)/2, 0)
	hi += carry // no overflow: both factors are at most 2⁶³
	if hi >= uint64(den) {
		return 0, ErrRange
	}
	n, _ := bits.Div64(hi, lo, uint64(den))
	if n > math.MaxInt64 {
		return 0, ErrRange
	}
	if (q < 0) != (num < 0) {
		return -int64(n), nil
	}
	return int64(n), nil
}

func magnitude(n int64) uint64 {
	if n < 0 {
		return -uint64(n)
	}
	return uint64(n)
}

// Add adds amounts.
func Add(amounts ...int64) (sum int64, err error) {
	for _, n := range amounts {
		next := sum + n
		if n > 0 && next < sum || n < 0 && next > sum {
			return 0, ErrRange
		}
		sum = next
	}
	return sum, nil
}

// Share returns the part of an amount that is due for some of its units: 7 of 30 hours.
func Share(amount, part, whole int64) (int64, error) { return MulDiv(amount, part, whole) }

// Percent returns basis points of an amount: 1900 are 19 %.
func Percent(amount, basisPoints int64) (int64, error) { return MulDiv(amount, basisPoints, 10_000) }

// Decimal writes an amount without its currency: 1900 EUR is 19.00, 1900 JPY is 1900.
func (c Currency) Decimal(amount int64) string {
	n := c.Digits()
	text := strconv.FormatUint(magnitude(amount), 10)
	if n > 0 {
		if len(text) <= n {
			text = strings.Repeat("0", n+1-len(text)) + text
		}
		text = text[:len(text)-n] + "." + text[len(text)-n:]
	}
	if amount < 0 {
		return "-" + text
	}
	return text
}

// Format writes an amount with its currency.
func (c Currency) Format(amount int64) string { return c.Decimal(amount) + " " + string(c) }

// ParseDecimal reads an amount as Decimal writes it. Fewer decimal places are allowed, more are not.
func (c Currency) ParseDecimal(s string) (int64, error) {
	whole, part, dot := strings.Cut(s, ".")
	bare, negative := strings.CutPrefix(whole, "-")
	figures := func(s string) bool {
		return s != "" && len(s) <= 18 && strings.Trim(s, "0123456789") == ""
	}
	if !figures(bare) || dot && !figures(part) || len(part) > c.Digits() {
		return 0, fmt.Errorf("%q is not an amount in %s, such as %s", s, c, c.Decimal(1900))
	}
	n, err := strconv.ParseInt(bare+part+strings.Repeat("0", c.Digits()-len(part)), 10, 64)
	if err != nil {
		return 0, ErrRange
	}
	if negative {
		n = -n
	}
	return n, nil
}
