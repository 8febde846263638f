package console

import (
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"testing"
	"time"
)

// client returns a client with a session, as a browser has one, and without the browser's own work: for measurements.
func (c *console) client(t testing.TB) *http.Client {
	t.Helper()
	jar, err := cookiejar.New(nil)
	must(t, err)
	client := &http.Client{Jar: jar}
	response, err := client.Get(c.first("/login"))
	must(t, err)
	must(t, response.Body.Close())
	return client
}

// load gets a page, and returns how long that took.
func (c *console) load(t testing.TB, client *http.Client, page string) (text string, took time.Duration) {
	t.Helper()
	begin := time.Now()
	response, err := client.Get(c.url(page))
	must(t, err)
	body, err := io.ReadAll(response.Body)
	must(t, err)
	must(t, response.Body.Close())
	if response.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s: %s", page, response.Status, body)
	}
	return string(body), time.Since(begin)
}

var _ = fmt.Sprint
