package console

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/cli/browser"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/console/web"
)

// firstPage goes on to the console. It is a file because all users of a machine can read the arguments of a program, and so the token. It
// sends a form, because a browser says of a link in a file the same as of one of another site.
const firstPage = `<!DOCTYPE html><meta charset="utf-8"><title>Gatehouse</title><link rel="icon" href="data:,"><form method="post" action="http://%s%s/enter">` +
	`<input type="hidden" name="token" value="%s"><button>Continue to the console</button></form><script>document.forms[0].submit()</script>`

// openBrowser opens the URL in the browser of the desktop. It does not matter if there is none: the URL is on the terminal.
func openBrowser(messages io.Writer, work, address string, secrets web.Secrets) {
	file := filepath.Join(work, "console.html")
	err := os.WriteFile(file, fmt.Appendf(nil, firstPage, address, secrets.Base, secrets.Token), 0o600)
	if err == nil {
		browser.Stdout, browser.Stderr = io.Discard, io.Discard
		err = browser.OpenFile(file)
	}
	if err != nil {
		_, _ = fmt.Fprintf(messages, "No browser was opened: %v\n", cli.Cause(err))
	}
}
