package money

import (
	"errors"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
)

// edge returns a number that is often near the limits of int64.
func edge(r *rand.Rand) int64 {
	switch r.IntN(5) {
	case 0:
		return math.MaxInt64 - r.Int64N(3)
	case 1:
		return math.MinInt64 + r.Int64N(3)
	case 2:
		return r.Int64N(5) - 2
	case 3:
		return int64(r.Uint64())
	}
	return r.Int64N(1<<40) - 1<<39
}

// oracle is MulDiv with arbitrary precision.
func oracle(q, num, den int64) (int64, bool) {
	p := new(big.Int).Mul(big.NewInt(q), big.NewInt(num))
	sign := p.Sign()
	p.Abs(p).Add(p, big.NewInt(den/2)).Div(p, big.NewInt(den))
	if sign < 0 {
		p.Neg(p)
	}
	return p.Int64(), p.IsInt64() && p.Int64() != math.MinInt64
}

// MulDiv agrees with math/big, or returns an error, also near the limits of int64.
func TestMulDivAgainstBig(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(24, 26))
	for range 2_000_000 {
		q, num, den := edge(r), edge(r), edge(r)
		got, err := MulDiv(q, num, den)
		if den <= 0 {
			if err == nil {
				t.Fatalf("%d·%d/%d has an answer", q, num, den)
			}
			continue
		}
		want, fits := oracle(q, num, den)
		if fits != (err == nil) || fits && got != want {
			t.Fatalf("%d·%d/%d = %d, %v; want %d, fits: %v", q, num, den, got, err, want, fits)
		}
		if back, err2 := MulDiv(-q, num, den); q != math.MinInt64 && (err2 == nil) != (err == nil) || err == nil && err2 == nil && back != -got && q != math.MinInt64 {
			t.Fatalf("-(%d·%d/%d) = %d, want %d", q, num, den, back, -got)
		}
	}
}

// The parts of a rate sum to the quantity above the included one, and each part's price agrees with math/big.
func TestTiersAgainstBig(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 24))
	for range 100_000 {
		rate := Rate{Included: r.Int64N(1000)}
		var upTo int64
		for i := range 1 + r.IntN(4) {
			upTo += 1 + r.Int64N(1<<uint(1+r.IntN(40)))
			rate.Tiers = append(rate.Tiers, Tier{UpTo: upTo, Amount: r.Int64N(10_000), Per: 1 + r.Int64N(1<<34)})
			_ = i
		}
		rate.Tiers[len(rate.Tiers)-1].UpTo = 0
		if err := rate.Check(); err != nil {
			t.Fatal(err)
		}
		q := r.Int64N(1 << uint(1+r.IntN(62)))
		parts, err := rate.Price(0, q)
		if errors.Is(err, ErrRange) {
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		var sum int64
		for _, p := range parts {
			sum += p.Quantity
			if want, _ := oracle(p.Quantity, rate.Tiers[p.Tier].Amount, rate.Tiers[p.Tier].Per); p.Amount != want {
				t.Fatalf("%+v costs %d, want %d", p, p.Amount, want)
			}
		}
		if sum != max(0, q-rate.Included) {
			t.Fatalf("%d of %d in parts %+v of %+v", sum, q, parts, rate)
		}
		// Pricing a quantity in two steps puts the same amounts into each tier.
		first := r.Int64N(q + 1)
		one, err := rate.Price(0, first)
		two, err2 := rate.Price(first, q-first)
		if err != nil || err2 != nil {
			t.Fatal(err, err2)
		}
		in := make([]int64, len(rate.Tiers))
		for _, p := range slices.Concat(one, two) {
			in[p.Tier] += p.Quantity
		}
		for _, p := range parts {
			in[p.Tier] -= p.Quantity
		}
		if slices.ContainsFunc(in, func(n int64) bool { return n != 0 }) {
			t.Fatalf("%d and %d are %+v and %+v, together %+v of %+v", first, q-first, one, two, parts, rate)
		}
	}
	if _, err := (Rate{Tiers: []Tier{{Amount: math.MaxInt64, Per: 1}}}).Price(0, 2); !errors.Is(err, ErrRange) {
		t.Errorf("too large a price: %v", err)
	}
	if _, err := (Rate{}).Price(0, -1); err == nil {
		t.Error("a negative quantity has a price")
	}
}

func TestRateCheck(t *testing.T) {
	t.Parallel()
	for name, r := range map[string]Rate{
		"negative included": {Included: -1},
		"negative amount":   {Tiers: []Tier{{Amount: -1, Per: 1}}},
		"no unit":           {Tiers: []Tier{{Amount: 1}}},
		"no last tier":      {Tiers: []Tier{{UpTo: 5, Amount: 1, Per: 1}}},
		"falling":           {Tiers: []Tier{{UpTo: 5, Per: 1}, {UpTo: 5, Per: 1}, {Per: 1}}},
		"too many":          {Tiers: make([]Tier, 11)},
	} {
		if r.Check() == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// Amounts have the decimal places of ISO 4217, and parsing a formatted amount returns it.
func TestDecimals(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		currency string
		amount   int64
		want     string
	}{
		{"EUR", 1900, "19.00"},
		{"EUR", 5, "0.05"},
		{"EUR", -5, "-0.05"},
		{"JPY", 1900, "1900"},
		{"KWD", 1900, "1.900"},
		{"IQD", -1, "-0.001"},
		{"ISK", 7, "7"},
		{"UGX", 0, "0"},
		{"USD", math.MaxInt64, "92233720368547758.07"},
	} {
		c, err := ParseCurrency(tt.currency)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Decimal(tt.amount); got != tt.want {
			t.Errorf("%d %s is %q, want %q", tt.amount, c, got, tt.want)
		}
		if back, err := c.ParseDecimal(tt.want); err != nil || back != tt.amount {
			t.Errorf("%q %s is %d, %v; want %d", tt.want, c, back, err, tt.amount)
		}
	}
	for _, bad := range []string{"", "eur", "XXX", "XAU", "XTS", "EURO", "ABC", "€"} {
		if c, err := ParseCurrency(bad); err == nil {
			t.Errorf("%q is the currency %s", bad, c)
		}
	}
	for _, bad := range []string{"", "-", "1,00", "1.005", ".5", "1.", "+1", "1e3", "999999999999999999999", "--1", "92233720368547758.08"} {
		if n, err := Currency("EUR").ParseDecimal(bad); err == nil {
			t.Errorf("%q is %d", bad, n)
		}
	}
}

func TestAdd(t *testing.T) {
	t.Parallel()
	if n, err := Add(5, -7, 1); n != -1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	for _, list := range [][]int64{{math.MaxInt64, 1}, {math.MinInt64, -1}} {
		if n, err := Add(list...); err == nil {
			t.Errorf("%d + %d = %d", list[0], list[1], n)
		}
	}
}
