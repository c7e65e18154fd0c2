package site

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
)

// FreeName returns the name as it is where no site of the owner has it, in whatever letter case, and else with the smallest
// number after it that makes it one of its own: "Shop 2". The interface for programs lets names be equal, as its contract
// does; people are kept from mixing up their sites.
func (s *Sites) FreeName(ctx context.Context, r db.Reader, owner account.OwnerID, name string) (string, error) {
	name = strings.TrimSpace(name)
	if fold(name) == "" { // refused where it is used
		return name, nil
	}
	var args db.Args
	rows, err := r.Query(ctx, `SELECT name FROM sites WHERE owner_id = `+args.Add(owner)+` AND deleted_at = 0 AND search LIKE `+
		args.Add(literal.Replace(fold(name))+"%")+` ESCAPE '\'`, args...)
	taken := map[string]bool{}
	_, err = db.Collect(rows, err, func(row db.Scanner) (struct{}, error) {
		var n string
		err := row.Scan(&n)
		taken[fold(n)] = true
		return struct{}{}, err
	})
	if err != nil {
		return "", fmt.Errorf("find a free name: %w", err)
	}
	free := name
	for n := 2; taken[fold(free)]; n++ {
		number := " " + strconv.Itoa(n)
		cut := []rune(name)
		cut = cut[:min(len(cut), 100-len(number))] // what is too long for a name would be refused
		free = strings.TrimRight(string(cut), " ") + number
	}
	return free, nil
}
