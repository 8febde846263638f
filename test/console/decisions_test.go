package console

import (
	"errors"
	"fmt"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/chromium"
)

// listed is what the list of decisions shows: how many there are, and the objects of this page, the newest first.
type listed struct {
	Total int
	Names []string
}

func list(p *chromium.Page) (l listed) {
	p.Evaluate(`({
		Total: Number(document.querySelector("#decision-list strong")?.textContent.replace(/\D/g, "") || 0),
		Names: [...document.querySelectorAll("table[aria-label^='Decisions, the newest'] tbody tr")].map(row => row.cells[5].textContent.replace(/.*\//, "")),
	})`, &l)
	return l
}

// waitFor waits until the list shows so many decisions, and returns it.
func waitFor(t testing.TB, p *chromium.Page, total int) (l listed) {
	t.Helper()
	support.Eventually(t, fmt.Sprintf("%d decisions on %s", total, p.URL()), func() error {
		l = list(p)
		var reading bool
		p.Evaluate(`!!document.querySelector("#decision-list progress")`, &reading)
		if reading {
			return errors.New("the recording is being read")
		}
		if l.Total != total {
			return fmt.Errorf("there are %d", l.Total)
		}
		return nil
	})
	return l
}

func moreThan(got, want int) error {
	if got <= want {
		return fmt.Errorf("there are %d, want more than %d", got, want)
	}
	return nil
}
