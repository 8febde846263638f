package paging_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/paging"
)

// server has objects of these sizes, whose names are their numbers.
type server struct {
	sizes []int
	// limits are those that were asked for, and read how many bytes were read of each answer.
	limits []int
	read   []*counter
	// fail answers the n-th request in place of the server, unless it returns nil twice.
	fail func(n int) (*metav1.Status, error)
}

type counter struct {
	io.Reader

	n int
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += n
	return n, err
}

func (*counter) Close() error { return nil }

func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	query := r.URL.Query()
	limit, _ := strconv.Atoi(query.Get("limit"))
	s.limits = append(s.limits, limit)
	answer := func(code int, text string) (*http.Response, error) {
		body := &counter{Reader: strings.NewReader(text)}
		s.read = append(s.read, body)
		return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: body, Request: r}, nil
	}
	if s.fail != nil {
		if status, err := s.fail(len(s.limits) - 1); status != nil || err != nil {
			if err != nil {
				return nil, err
			}
			status.Kind, status.APIVersion, status.Status = "Status", "v1", metav1.StatusFailure
			text, err := json.Marshal(status)
			if err != nil {
				return nil, err
			}
			return answer(int(status.Code), string(text))
		}
	}
	from, _ := strconv.Atoi(query.Get("continue"))
	to, next := min(from+limit, len(s.sizes)), ""
	if to < len(s.sizes) {
		next = strconv.Itoa(to)
	}
	var items []string
	for i := from; i < to; i++ {
		items = append(items, fmt.Sprintf(`{"metadata":{"namespace":"a","name":"%06d"},"data":"%s"}`, i, large[:s.sizes[i]]))
	}
	return answer(http.StatusOK, fmt.Sprintf(`{"kind":"ThingList","metadata":{"continue":%q},"items":[%s]}`, next, strings.Join(items, ",")))
}

// large is what the data of objects is cut from.
var large = strings.Repeat("x", 20<<20)

// names reads the names of all objects.
func names(t *testing.T, s *server, list *paging.List) ([]string, error) {
	t.Helper()
	all, err := kubernetes.NewForConfigAndClient(&rest.Config{Host: "http://api.example", QPS: -1}, &http.Client{Transport: s})
	if err != nil {
		t.Fatal(err)
	}
	list.Client, list.Resource = all.CoreV1().RESTClient(), "things"
	var out []string
	err = list.Each(t.Context(), func(page paging.Page) error {
		for _, item := range page.Items {
			out = append(out, item.Get("metadata", "name").Text())
		}
		return nil
	})
	return out, err
}

// TestPagesStaySmall has pages of about 1 MiB, however large objects are, and reads no large page of many to its end.
func TestPagesStaySmall(t *testing.T) {
	t.Parallel()
	const most = 4<<20 + 64<<10
	for name, sizes := range map[string][]int{
		"small":                  slices.Repeat([]int{100}, 3000),
		"large":                  slices.Repeat([]int{1_500_000}, 12),
		"large behind small":     append(slices.Repeat([]int{100}, 1000), slices.Repeat([]int{1_500_000}, 8)...),
		"small behind large":     append(slices.Repeat([]int{1_500_000}, 8), slices.Repeat([]int{100}, 1000)...),
		"a very large among few": {100, 100, 20 << 20, 100},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &server{sizes: sizes}
			got, err := names(t, s, &paging.List{Limit: 20, MaxLimit: 500})
			if err != nil || len(got) != len(sizes) || !slices.IsSorted(got) {
				t.Fatalf("%d of %d objects, %v", len(got), len(sizes), err)
			}
			for i, read := range s.read {
				if read.n > most && s.limits[i] > 1 {
					t.Errorf("of a page of %d objects %d bytes were read", s.limits[i], read.n)
				}
			}
			if pages := len(s.limits); name == "small" && pages > 10 {
				t.Errorf("%d pages: %v", pages, s.limits)
			}
		})
	}
}

// TestErrors has what is tried again, and what is not.
func TestErrors(t *testing.T) {
	t.Parallel()
	status := func(code int32, reason metav1.StatusReason) *metav1.Status {
		return &metav1.Status{Code: code, Reason: reason, Message: "the reason"}
	}
	for name, tc := range map[string]struct {
		fail    func(n int) (*metav1.Status, error)
		retries *paging.Retries
		// want is the end of the error, "" for none, and took how long it takes.
		want string
		took time.Duration
	}{
		"without retries": {func(int) (*metav1.Status, error) { return nil, errors.New("refused") }, nil, "refused", 0},
		"a failure":       {func(n int) (*metav1.Status, error) { return map[int]*metav1.Status{0: status(503, "")}[n], nil }, &paging.Retries{Budget: time.Minute}, "", time.Second},
		"twice": {func(n int) (*metav1.Status, error) {
			return map[int]*metav1.Status{1: status(500, ""), 2: status(504, "")}[n], nil
		}, &paging.Retries{Budget: time.Minute}, "", 3 * time.Second},
		"for ever":  {func(int) (*metav1.Status, error) { return nil, errors.New("refused") }, &paging.Retries{Budget: time.Minute}, "refused", 31 * time.Second},
		"forbidden": {func(int) (*metav1.Status, error) { return status(403, metav1.StatusReasonForbidden), nil }, &paging.Retries{Budget: time.Minute}, "the reason", 0},
		"expired at the end": {func(n int) (*metav1.Status, error) {
			return map[int]*metav1.Status{1: status(410, metav1.StatusReasonExpired)}[n], nil
		}, nil, "the reason", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				got, err := names(t, &server{sizes: slices.Repeat([]int{1}, 30), fail: tc.fail}, &paging.List{Limit: 10, Retries: tc.retries})
				if took := time.Since(began); took != tc.took {
					t.Errorf("it took %s, want %s", took, tc.took)
				}
				if err == nil && (tc.want != "" || len(got) != 30) || err != nil && (tc.want == "" || !strings.HasPrefix(err.Error(), "list things: ") || !strings.HasSuffix(err.Error(), tc.want)) {
					t.Errorf("%d objects, %v, want %q", len(got), err, tc.want)
				}
			})
		})
	}
}
