package site

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
)

// FreeName returns name if none of the owner's sites has it (ignoring case), otherwise name with the smallest number
// that makes it unique: "Shop 2". The dashboard uses it to prevent confusion; the API's contract allows equal names.
func (s *Sites) FreeName(ctx context.Context, r db.Reader, owner account.OwnerID, name string) (string, error) {
	name = strings.TrimSpace(name)
	if fold(name) == "" { // refused when it is used
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
		cut = cut[:min(len(cut), 100-len(number))] // leave room for the number within 100 characters
		free = strings.TrimRight(string(cut), " ") + number
	}
	return free, nil
}
