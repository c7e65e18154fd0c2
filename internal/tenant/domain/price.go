package domain

import (
	"bufio"
	_ "embed"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

//go:embed prices.txt
var defaultPrices string

// Price is a name's price per year.
type Price struct {
	Amount   int    // whole units of the currency, 0 or more
	Currency string // ISO 4217 code
}

// Prices maps public suffixes in A-labels to prices. "*" stands for all other suffixes.
type Prices map[string]Price

// LoadPrices reads the operator's price list: lines of suffix, price and currency, and "#" comments. Suffixes not
// listed keep the built-in price.
func LoadPrices(path string) (Prices, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read price list: %w", err)
	}
	defer f.Close()
	p, err := parsePrices(f)
	if err != nil {
		return nil, fmt.Errorf("read price list %s: %w", path, err)
	}
	return p, nil
}

func parsePrices(r io.Reader) (Prices, error) {
	p := Prices{}
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		text, _, _ := strings.Cut(lines.Text(), "#")
		f := strings.Fields(text)
		if len(f) == 0 {
			continue
		}
		if len(f) != 3 {
			return nil, fmt.Errorf("line %d: want a suffix, a price and a currency", n)
		}
		suffix := strings.TrimPrefix(f[0], ".")
		if suffix != "*" {
			var err error
			if suffix, err = ascii(suffix); err != nil {
				return nil, fmt.Errorf("line %d: %q is not a suffix: %w", n, f[0], err)
			}
		}
		amount, err := strconv.Atoi(f[1])
		if err != nil || amount < 0 {
			return nil, fmt.Errorf("line %d: the price %q is not a whole number", n, f[1])
		}
		currency := strings.ToUpper(f[2])
		if len(currency) != 3 || strings.Trim(currency, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
			return nil, fmt.Errorf("line %d: %q is not a currency code", n, f[2])
		}
		p[suffix] = Price{amount, currency}
	}
	return p, lines.Err()
}

// Of returns the price of name's longest listed suffix, or that of "*", or the zero Price.
func (p Prices) Of(name string) Price {
	for suffix := name; ; {
		_, rest, ok := strings.Cut(suffix, ".")
		if !ok {
			return p["*"]
		}
		if price, ok := p[rest]; ok {
			return price
		}
		suffix = rest
	}
}

// withDefaults returns the built-in list overridden by p.
func (p Prices) withDefaults() Prices {
	all, err := parsePrices(strings.NewReader(defaultPrices))
	if err != nil {
		panic("prices.txt: " + err.Error()) // embedded and covered by a test
	}
	for suffix, price := range p {
		all[suffix] = price
	}
	return all
}
