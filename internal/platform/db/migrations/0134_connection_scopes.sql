-- +goose Up

ALTER TABLE connections ADD COLUMN scopes TEXT NOT NULL DEFAULT ''; -- what the forge says that the token may do, separated by spaces; empty: it doesn't say
