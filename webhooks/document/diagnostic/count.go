package diagnostic

import (
	"fmt"
)

// Count returns a number with a noun: "1 finding", "2 findings".
func Count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
