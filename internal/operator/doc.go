// Package operator owns no code. It is the district of what the operator of an installation does:
// settings, data directory, users, recovery, the doctor.
//
// Its rule: it works on the data directory of one installation, mostly without a service that runs.
//
// Begin with config/config.go holds the settings.
package operator
