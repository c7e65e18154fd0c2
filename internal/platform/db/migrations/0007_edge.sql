-- +goose Up

-- Written by package certs.
CREATE TABLE authority (
  id          TEXT PRIMARY KEY, -- 'local': the one that signs for the sites of this installation
  certificate TEXT NOT NULL,    -- PEM
  private_key TEXT NOT NULL,    -- PKCS #8, sealed
  created_at  BIGINT NOT NULL
);
