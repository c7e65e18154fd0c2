-- +goose Up

-- An invoice is looked for by its number, and payments by their invoice, however many there are.
CREATE INDEX billing_invoices_number_only ON billing_invoices (number) WHERE number <> '';
CREATE INDEX billing_payments_invoice ON billing_payments (invoice_id, attempt);
