// Package backup owns no code. It is the district of copies of sites and of the installation: taken,
// verified, restored, expired.
//
// Its rule: a backup counts once it was restored beside the site and answered.
//
// Begin with backup/take.go, then restore.go; parts.go says what it asks of others. The bytes of a backup
// are repository's.
package backup
