package console

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/test/support"
	"github.com/gatehouse-dev/gatehouse/test/support/gatehouse"
)

const (
	// reviewsVariable is the number of reviews of the large recording. With a million, the test is a measurement.
	reviewsVariable = "CONSOLE_REVIEWS"
	defaultReviews  = 100_000
	// rowsOfPage is how many rows a page of a list has.
	rowsOfPage = 50
)

// TestLargeRecording: the newest decisions come first, pages follow each other without holes, and filters count exactly.
func TestLargeRecording(t *testing.T) {
	t.Parallel()
	reviews := defaultReviews
	if text := os.Getenv(reviewsVariable); text != "" {
		var err error
		reviews, err = strconv.Atoi(text)
		must(t, err)
	}
	g := generate(t, reviews)
	must(t, g.close())
	startIndexed(t, g.dir)
	c, client := startIndexed(t, g.dir) // with the index of the first one

	p := c.open(t, "/decisions", desktop)
	denied, inNamespace := 0, 0
	for i := range reviews {
		if isDenied(i) {
			denied++
		}
		if namespaceOf(i) == "namespace-3" {
			inNamespace++
		}
	}
	lastDenied := reviews - 1
	for !isDenied(lastDenied) {
		lastDenied--
	}
	for _, of := range []struct {
		page  string
		total int
		want  []string
	}{
		{"/decisions", reviews, generatedNames(reviews-1, 1)},
		{"/decisions?page=2", reviews, generatedNames(reviews-1-rowsOfPage, 1)},
		{fmt.Sprintf("/decisions?page=%d", reviews/rowsOfPage), reviews, generatedNames(rowsOfPage-1, 1)},
		{"/decisions?decision=denied", denied, generatedNames(lastDenied, 10)},
		{"/decisions?namespace=namespace-3", inNamespace, nil},
		{"/decisions?name=" + nameOf(4321), 1, []string{nameOf(4321)}},
		{"/decisions?user=nobody", 0, nil},
	} {
		c.visit(t, p, of.page)
		got := waitFor(t, p, of.total)
		if of.want != nil && !slices.Equal(got.Names, of.want) {
			t.Errorf("%s shows %q, want %q", of.page, got.Names, of.want)
		}
		_, took := c.load(t, client, of.page)
		t.Logf("%s: %s", of.page, took.Round(time.Millisecond))
	}
	c.checkBrowser(t, p)
	peak, err := gatehouse.PeakMemory(c.process.PID())
	must(t, err)
	t.Logf("peak of resident memory: %d MiB", peak>>20)
}

// startIndexed starts a console, and waits until it has read the recording.
func startIndexed(t *testing.T, recording string) (*console, *http.Client) {
	t.Helper()
	began := time.Now()
	c := start(t, "--recording", recording)
	client := c.client(t)
	_, first := c.load(t, client, "/decisions")
	t.Logf("first page in %s, %s after the start of the program", first.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
	support.Eventually(t, "the index", func() error {
		if text, _ := c.load(t, client, "/decisions"); strings.Contains(text, "<progress") {
			return errors.New("it is not complete")
		}
		return nil
	})
	t.Logf("index complete %s after the start", time.Since(began).Round(time.Millisecond))
	return c, client
}

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
