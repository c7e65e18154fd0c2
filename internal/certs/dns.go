package certs

// dns reports whether challenges in the DNS can be answered here.
func (s *Certs) dns() bool { return false }
