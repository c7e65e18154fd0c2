package blob

// Backend returns a Store's backend, for the tests of all backends.
func (s *Store) Backend() Backend { return s.backend }

// NewMemory returns a deletion record that a test's stores share.
func NewMemory() Deletions { return &memory{} }
