-- +goose Up

-- Whether VIES said what is known of a VAT number, else the operator did, and whose number VIES says that it is: JSON.
ALTER TABLE billing_profiles ADD COLUMN vat_by_vies BOOLEAN NOT NULL DEFAULT FALSE;
ALTER TABLE billing_profiles ADD COLUMN vat_found TEXT NOT NULL DEFAULT '{}';
-- Numbers that VIES knew before names were compared are asked for again.
UPDATE billing_profiles SET vat_by_vies = TRUE, vat_next_at = 0 WHERE vat_state = 'valid' AND vat_consultation <> '';
