package money

import (
	"errors"
	"fmt"
	"math"
)

// Rate says what a metered quantity costs: nothing up to what is included, and beyond it each tier's price for the
// part of the quantity that lies in the tier.
type Rate struct {
	Included int64
	Tiers    []Tier
}

// Tier is a price: Amount for each Per units, up to UpTo of what exceeds the included quantity.
type Tier struct {
	UpTo   int64 // 0 in the last tier: without an end
	Amount int64
	Per    int64
}

// mostTiers bounds a rate.
const mostTiers = 10

// Check reports what is wrong with a rate.
func (r Rate) Check() error {
	switch {
	case r.Included < 0:
		return errors.New("included must be at least 0")
	case len(r.Tiers) > mostTiers:
		return fmt.Errorf("a rate has at most %d tiers", mostTiers)
	}
	var before int64
	for i, t := range r.Tiers {
		last := i == len(r.Tiers)-1
		switch {
		case t.Amount < 0 || t.Per <= 0:
			return fmt.Errorf("tier %d: amount must be at least 0 and per at least 1", i+1)
		case last && t.UpTo != 0:
			return errors.New("the last tier must have no upTo: it covers the rest")
		case !last && t.UpTo <= before:
			return fmt.Errorf("tier %d: upTo must be larger than that of the tier before", i+1)
		}
		before = t.UpTo
	}
	return nil
}

// Part is what lies in one tier, and what it costs.
type Part struct {
	Tier     int
	Quantity int64
	Amount   int64
}

// Price returns a part for each tier that a quantity reaches which is used after another one: included amounts and tiers that the
// first one used up are gone. Each part is rounded once.
func (r Rate) Price(before, quantity int64) (parts []Part, err error) {
	if before < 0 || quantity < 0 {
		return nil, errors.New("a quantity must be at least 0")
	}
	total, err := Add(before, quantity)
	if err != nil {
		return nil, err
	}
	from, rest := max(0, before-r.Included), max(0, total-r.Included)
	for i, t := range r.Tiers {
		upTo := t.UpTo
		if upTo == 0 {
			upTo = math.MaxInt64
		}
		in := min(rest, upTo) - from
		if in <= 0 {
			continue
		}
		amount, err := MulDiv(in, t.Amount, t.Per)
		if err != nil {
			return nil, err
		}
		parts, from = append(parts, Part{i, in, amount}), upTo
	}
	return parts, nil
}
