package blob

// Backend returns what a Store is on, for the tests of all backends.
func (s *Store) Backend() Backend { return s.backend }

// NewMemory returns a record of deletions that two stores of a test share.
func NewMemory() Deletions { return &memory{} }
