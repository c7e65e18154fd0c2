-- +goose Up

-- Whether a VAT number exists is asked of VIES: what it said when, and when it is asked again while it is not known.
ALTER TABLE billing_profiles ADD COLUMN vat_checked_at BIGINT NOT NULL DEFAULT 0;
ALTER TABLE billing_profiles ADD COLUMN vat_consultation TEXT NOT NULL DEFAULT '';
ALTER TABLE billing_profiles ADD COLUMN vat_next_at BIGINT NOT NULL DEFAULT 0;
