package money

import (
	"errors"
	"fmt"
	"math"
)

// Rate is the price of a metered quantity: Included units are free, and the units beyond are charged at the price of
// the tier they fall in.
type Rate struct {
	Included int64
	Tiers    []Tier
}

// Tier is a price of Amount per Per units, for the units beyond Included up to UpTo.
type Tier struct {
	UpTo   int64 // 0 in the last tier: unlimited
	Amount int64
	Per    int64
}

// maxTiers caps the tiers of a rate.
const maxTiers = 10

// Check validates a rate.
func (r Rate) Check() error {
	switch {
	case r.Included < 0:
		return errors.New("included must be at least 0")
	case len(r.Tiers) > maxTiers:
		return fmt.Errorf("a rate has at most %d tiers", maxTiers)
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

// Part is the quantity in one tier and its price.
type Part struct {
	Tier     int
	Quantity int64
	Amount   int64
}

// Price returns a part for each tier reached by quantity, given that before units were already used and have consumed
// included units and tiers. Each part is rounded once.
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
