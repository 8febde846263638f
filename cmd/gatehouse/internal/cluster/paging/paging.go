// Package paging reads all objects of a resource from an API server, page by page: a List as JSON, so
// that neither memory nor the load of the API server grows with their number, and Objects what a command needs in memory.
package paging

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/internal/apierr"
	"github.com/gatehouse-dev/gatehouse/internal/sleep"
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

const (
	// maxBytes is the size of the largest page of several objects. A larger one is not read to its
	// end, and asked for again with fewer objects.
	maxBytes = 4 << 20
	// usualBytes is the size of the pages that MaxLimit leaves room for.
	usualBytes = 1 << 20
	// maxObject is the size of the largest object. etcd takes 1.5 MiB by default, which JSON makes a few
	// times as much.
	maxObject = 64 << 20
	// growth is how many times as many objects the next page may have.
	growth = 4
	// maxRenewed is how often the token of one page may be renewed.
	maxRenewed = 5
	// pageTimeout bounds how long one page is waited for.
	pageTimeout = 30 * time.Second
)

// List names the objects that are read. It is for one reading.
type List struct {
	// Client is that of the API group and version.
	Client rest.Interface
	// Resource is the plural, and Namespace is "" for all namespaces.
	Resource, Namespace string
	FieldSelector       string
	// Limit is the number of objects of the first page. With a MaxLimit that is larger, the next pages
	// have as many as make about 1 MiB, and MaxLimit at most. However few are asked for, a page that would be
	// larger than 4 MiB is read with fewer.
	Limit, MaxLimit int64
	// Retries may be nil: then an error of the API server ends the list.
	Retries *Retries

	limit int64
	// next is the token of the page that is read next.
	next   string
	buffer bytes.Buffer
}

// Page is a page of objects. It is valid until the function that gets it returns.
type Page struct {
	// Items are the objects of the page.
	Items []rawjson.Value
	// Last reports whether there is no page behind it.
	Last bool
	// Began is when the page was asked for, without attempts that failed.
	Began time.Time
}

// Each calls visit with each page. It returns the error of visit as it is; that of a page wraps what the
// API server answered.
//
// A list whose token has expired goes on where it was, as of now, with the token that the API server gives for that. One
// that gives none ends the list.
func (l *List) Each(ctx context.Context, visit func(Page) error) error {
	l.limit = max(l.Limit, 1)
	for {
		page, err := l.page(ctx)
		if err != nil {
			return fmt.Errorf("list %s: %w", l.Resource, err)
		}
		if err := visit(page); err != nil {
			return err
		}
		if page.Last {
			return nil
		}
	}
}

// errTooLarge means that a page has more than maxBytes.
var errTooLarge = errors.New("the page is too large")

// page returns the next page.
func (l *List) page(ctx context.Context) (Page, error) {
	for attempt, renewed := 0, 0; ; {
		if err := context.Cause(ctx); err != nil {
			return Page{}, err
		}
		began := time.Now()
		list, err := l.get(ctx)
		if err == nil {
			l.Retries.succeed()
			return l.accept(list, began)
		}
		switch token, expired := continueToken(err), apierrors.IsResourceExpired(err); {
		case errors.Is(err, errTooLarge):
			l.limit = max(1, l.limit/growth)
		case expired && token != "" && renewed < maxRenewed:
			renewed++
			l.next = token // what is left of the list is as of now
		case !l.Retries.wait(ctx, err, attempt):
			return Page{}, err
		default:
			attempt++
			if errors.Is(err, context.DeadlineExceeded) {
				l.limit = max(1, l.limit/growth)
			}
		}
	}
}

// get reads a page into the buffer.
func (l *List) get(ctx context.Context) (rawjson.Value, error) {
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	// A list as of any resource version would come in one piece.
	request := l.Client.Get().NamespaceIfScoped(l.Namespace, l.Namespace != "").Resource(l.Resource).
		SetHeader("Accept", "application/json").
		Param("limit", strconv.FormatInt(l.limit, 10)).
		MaxRetries(0)
	if l.FieldSelector != "" {
		request = request.Param("fieldSelector", l.FieldSelector)
	}
	if l.next != "" {
		request = request.Param("continue", l.next)
	}
	body, err := request.Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer body.Close() //nolint:errcheck // it was read
	most := int64(maxBytes)
	if l.limit == 1 {
		most = maxObject
	}
	if l.buffer.Reset(); l.buffer.Cap() > 2*maxBytes {
		l.buffer = bytes.Buffer{} // not kept for one large object
	}
	n, err := l.buffer.ReadFrom(io.LimitReader(body, most+1))
	switch {
	case err != nil:
		return nil, err
	case n > most && l.limit == 1:
		return nil, &AnswerError{fmt.Sprintf("one object of %s has more than %d MiB", l.Resource, maxObject>>20)}
	case n > most:
		return nil, errTooLarge
	}
	list, err := rawjson.Parse(l.buffer.Bytes())
	if err != nil {
		return nil, &AnswerError{"the answer is not JSON: " + err.Error()}
	}
	if items := list.Get("items").Kind(); !strings.HasSuffix(list.Get("kind").Text(), "List") || items != rawjson.Array && items != rawjson.Null {
		return nil, &AnswerError{"the answer is not a list of " + l.Resource}
	}
	return list, nil
}

// AnswerError is an answer that makes no sense. Another attempt would not help.
type AnswerError struct{ text string }

// Error says what is wrong.
func (e *AnswerError) Error() string { return e.text }

// accept returns a page, and prepares the next.
func (l *List) accept(list rawjson.Value, began time.Time) (Page, error) {
	l.next = list.Get("metadata", "continue").Text()
	page := Page{Last: l.next == "", Began: began}
	for _, item := range list.Get("items").Elements() {
		page.Items = append(page.Items, item)
	}
	if read := int64(len(page.Items)); l.MaxLimit > l.Limit && read > 0 {
		fit := usualBytes * read / int64(len(list))
		l.limit = max(1, min(fit, growth*read, l.MaxLimit))
	}
	return page, nil
}

// continueToken returns the token with which to continue a list whose own has expired,
// and "" for any other error.
func continueToken(err error) string {
	var status apierrors.APIStatus
	if apierrors.IsResourceExpired(err) && errors.As(err, &status) {
		return status.Status().Continue
	}
	return ""
}

// Retries are the attempts that several lists, one after the other, may make again. An API server that
// comes back is waited for, and one that does not keeps none of them for long: the waits
// between two successes are bounded.
type Retries struct {
	// Budget is how long the waits may be in sum, without a success between them.
	Budget time.Duration

	spent time.Duration
}

const (
	firstWait = time.Second
	maxWait   = 30 * time.Second
)

// wait waits before another attempt, and reports whether there is one.
func (r *Retries) wait(ctx context.Context, err error, attempt int) bool {
	if _, wrong := errors.AsType[*AnswerError](err); r == nil || wrong || !apierr.Classify(err).IsTemporary() {
		return false
	}
	wait := min(firstWait<<min(attempt, 10), maxWait)
	if seconds, suggested := apierrors.SuggestsClientDelay(err); suggested {
		wait = max(wait, time.Duration(seconds)*time.Second)
	}
	if r.spent += wait; r.spent > r.Budget {
		return false
	}
	return sleep.Context(ctx, wait)
}

func (r *Retries) succeed() {
	if r != nil {
		r.spent = 0
	}
}
