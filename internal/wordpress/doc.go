// Package wordpress owns no code. It is the district of what makes a site WordPress: its core,
// installation, guard, page cache, updates, copies.
//
// Its rule: it is an endpoint like a program's: nothing below knows that there is a WordPress.
//
// Begin with wordpress/wordpress.go, then guard/guard.go.
package wordpress
