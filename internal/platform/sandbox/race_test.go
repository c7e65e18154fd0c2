//go:build race

package sandbox

const raced = true
