// Package money owns amounts of money: currencies, their decimal places, and integer arithmetic that rounds once, half
// away from zero.
//
// An amount is a whole number of the currency's smallest unit. There are no floats, and an overflow of 64 bits is an
// error.
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

// digits holds the decimal places of currencies that don't have two (ISO 4217). CLDR, used by other libraries, differs
// because it has the digits usually displayed: none for the Iraqi dinar, for example.
var digits = map[Currency]int{
	"BIF": 0, "CLP": 0, "DJF": 0, "GNF": 0, "ISK": 0, "JPY": 0, "KMF": 0, "KRW": 0, "PYG": 0, "RWF": 0, "UGX": 0, "VND": 0, "VUV": 0,
	"XAF": 0, "XOF": 0, "XPF": 0,
	"BHD": 3, "IQD": 3, "JOD": 3, "KWD": 3, "LYD": 3, "OMR": 3, "TND": 3,
}

// Most is the largest amount accepted as input, in the currency's smallest unit.
const Most = 1_000_000_000_00

// ParseCurrency accepts a code in capitals.
func ParseCurrency(s string) (Currency, error) {
	unit, err := currency.ParseISO(s)
	money := !strings.HasPrefix(s, "X") || slices.Contains([]string{"XAF", "XOF", "XPF", "XCD"}, s) // not metals, funds or tests
	if err != nil || unit.String() != s || !money {
		return "", fmt.Errorf("%q is not a currency code such as EUR", s)
	}
	return Currency(s), nil
}

// Digits returns the number of decimal places.
func (c Currency) Digits() int {
	if n, ok := digits[c]; ok {
		return n
	}
	return 2
}

// ErrRange means that an amount doesn't fit into 64 bits.
var ErrRange = errors.New("the amount is too large")

// MulDiv returns q·num/den, rounded half away from zero. den must be positive.
func MulDiv(q, num, den int64) (int64, error) {
	if den <= 0 {
		return 0, fmt.Errorf("divide by %d: the divisor must be positive", den)
	}
	hi, lo := bits.Mul64(magnitude(q), magnitude(num))
	lo, carry := bits.Add64(lo, uint64(den)/2, 0)
	hi += carry // can't overflow: both factors are at most 2⁶³
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

// Add returns the sum of amounts.
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

// Share returns amount·part/whole, for example for 7 of 30 hours.
func Share(amount, part, whole int64) (int64, error) { return MulDiv(amount, part, whole) }

// Percent returns basisPoints/10,000 of an amount: 1900 means 19%.
func Percent(amount, basisPoints int64) (int64, error) { return MulDiv(amount, basisPoints, 10_000) }

// Decimal formats an amount without its currency: 19.00 for EUR 1900, 1900 for JPY 1900.
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

// Format formats an amount with its currency.
func (c Currency) Format(amount int64) string { return c.Decimal(amount) + " " + string(c) }

// ParseDecimal parses the format of Decimal. It accepts fewer decimal places but not more.
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
