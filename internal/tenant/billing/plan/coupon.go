package plan

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/id"
	"slipway/internal/platform/lazyregexp"
	"slipway/internal/tenant/billing/party"
	"slipway/internal/tenant/money"
)

// Coupon reduces the price of a subscription's first periods.
type Coupon struct {
	Code     string
	Points   int64 // basis points of the price; 0: use Amount
	Amount   int64
	Currency money.Currency // of Amount
	Periods  int64
	Most     int64   // maximum redemptions. Optional: 0 means unlimited.
	Until    db.Time // Optional: 0 means no expiry.
}

var couponCode = lazyregexp.New(`^[A-Z0-9][A-Z0-9-]{2,39}$`)

func (c Coupon) check() error {
	switch {
	case !couponCode.MatchString(c.Code):
		return fault.InvalidField("code", "a coupon's code has 3 to 40 capital letters, digits and hyphens", c.Code)
	case (c.Points != 0) == (c.Amount != 0) || c.Points < 0 || c.Points > 10_000 || c.Amount < 0 || c.Amount > money.Most:
		return fault.InvalidField("coupon", "a coupon is worth either 1 to 10000 basis points or an amount", nil)
	case c.Periods < 1 || c.Periods > 120:
		return fault.InvalidField("periods", "periods must be 1 to 120", c.Periods)
	case c.Most < 0:
		return fault.InvalidField("redemptions", "redemptions must be at least 0", c.Most)
	}
	if c.Amount != 0 {
		if _, err := money.ParseCurrency(string(c.Currency)); err != nil {
			return fault.InvalidField("currency", err.Error(), string(c.Currency))
		}
	}
	return nil
}

// CouponTx creates a coupon.
func (p *Plans) CouponTx(ctx context.Context, tx *db.Tx, c Coupon) error {
	if err := c.check(); err != nil {
		return err
	}
	n, err := tx.Exec(ctx, `
		INSERT INTO billing_coupons (code, points, amount, currency, periods, most, redeemed, until_at, created_at)
		VALUES ($1, $2, $3, $4, $5, $6, 0, $7, $8) ON CONFLICT (code) DO NOTHING`,
		c.Code, c.Points, c.Amount, c.Currency, c.Periods, c.Most, c.Until, p.clock.Now())
	if err != nil {
		return fmt.Errorf("write coupon: %w", err)
	}
	if n == 0 {
		return fault.New(fault.Conflict, "coupon_exists", "The coupon exists already",
			"what a coupon is worth never changes; choose another code")
	}
	return nil
}

var errCoupon = fault.InvalidField("coupon",
	"the coupon doesn't exist, has expired, is used up, was redeemed before, or is for another currency", nil)

// Redeemable returns a coupon that the owner may redeem for a version. A person may redeem each coupon once across
// their personal account and teams.
func (p *Plans) Redeemable(ctx context.Context, r db.Reader, owner id.Owner, code string, v Version) (c Coupon, err error) {
	var redeemed int64
	err = r.QueryRow(ctx, `
		SELECT code, points, amount, currency, periods, most, until_at, redeemed FROM billing_coupons c
		WHERE code = $2 AND NOT EXISTS (SELECT 1 FROM billing_redemptions x WHERE x.code = c.code AND x.owner_id IN (`+party.SameMaker+`))`,
		owner, code).
		Scan(&c.Code, &c.Points, &c.Amount, &c.Currency, &c.Periods, &c.Most, &c.Until, &redeemed)
	if errors.Is(err, sql.ErrNoRows) {
		return c, errCoupon
	}
	if err != nil {
		return c, fmt.Errorf("read coupon: %w", err)
	}
	if c.Most > 0 && redeemed >= c.Most || c.Until > 0 && c.Until <= p.clock.Now() || c.Amount > 0 && c.Currency != v.Currency {
		return c, errCoupon
	}
	return c, nil
}

// RedeemTx redeems a coupon for a subscription. Concurrent calls never exceed the coupon's maximum.
func (p *Plans) RedeemTx(ctx context.Context, tx *db.Tx, owner id.Owner, subscription string, c Coupon) error {
	n, err := tx.Exec(ctx, `UPDATE billing_coupons SET redeemed = redeemed + 1 WHERE code = $1 AND (most = 0 OR redeemed < most)`, c.Code)
	if err != nil {
		return fmt.Errorf("redeem coupon: %w", err)
	}
	if n == 0 {
		return errCoupon
	}
	if _, err := tx.Exec(ctx, `INSERT INTO billing_redemptions (code, owner_id, subscription_id, periods_left) VALUES ($1, $2, $3, $4)`,
		c.Code, owner, subscription, c.Periods); err != nil {
		return fmt.Errorf("redeem coupon: %w", err)
	}
	return nil
}

// Discount is the reduction of one period.
type Discount struct {
	Code           string
	Points, Amount int64
}

// TakeTx uses up one period of the subscription's coupon. It returns nil if none is left.
func (p *Plans) TakeTx(ctx context.Context, tx *db.Tx, subscription string, c money.Currency) (*Discount, error) {
	var d Discount
	err := tx.QueryRow(ctx, `
		SELECT c.code, c.points, c.amount FROM billing_redemptions x JOIN billing_coupons c ON c.code = x.code
		WHERE x.subscription_id = $1 AND x.periods_left > 0 AND (c.amount = 0 OR c.currency = $2)`, subscription, c).
		Scan(&d.Code, &d.Points, &d.Amount)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read coupon: %w", err)
	}
	if _, err := tx.Exec(ctx, `UPDATE billing_redemptions SET periods_left = periods_left - 1 WHERE subscription_id = $1 AND code = $2`,
		subscription, d.Code); err != nil {
		return nil, fmt.Errorf("use coupon: %w", err)
	}
	return &d, nil
}

// Off returns the amount taken off price.
func (d Discount) Off(price int64) (int64, error) {
	if d.Points > 0 {
		return money.Percent(price, d.Points)
	}
	return min(d.Amount, price), nil
}
