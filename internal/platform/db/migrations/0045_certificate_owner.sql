-- +goose Up

-- Written by package domain: whether an authority would find the proof of a wildcard
-- where it looks for it. Until the next check nobody knows better.
ALTER TABLE domains ADD COLUMN delegated BOOLEAN NOT NULL DEFAULT TRUE;

-- Written by package domain: since when the host that the domain redirects to is no domain
-- of its owner any more. 0: it is one, or never was.
ALTER TABLE domains ADD COLUMN redirect_lost_at BIGINT NOT NULL DEFAULT 0;

-- Who holds which name, for whoever shares out what there is too little of.
CREATE VIEW domain_holders AS
  SELECT name AS host, owner_id, delegated FROM domains WHERE proven_at <> 0;

-- Written by package certs: for whom an order is made. Empty: for the installation itself.
ALTER TABLE certificates ADD COLUMN owner_id TEXT NOT NULL DEFAULT '';
UPDATE certificates SET owner_id = COALESCE((SELECT d.owner_id FROM domains d WHERE d.name = certificates.host AND d.proven_at <> 0), '')
  WHERE kind = 'custom';
CREATE INDEX certificates_leased ON certificates (lease_until) WHERE lease_until <> 0;
CREATE INDEX certificates_gone ON certificates (owner_id, changed_at) WHERE state = 'gone';

ALTER TABLE acme_ledger ADD COLUMN owner_id TEXT NOT NULL DEFAULT '';
ALTER TABLE acme_ledger ADD COLUMN class TEXT NOT NULL DEFAULT ''; -- of an order: renewal, site, custom
