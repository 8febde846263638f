package cluster

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/gatehouse-dev/gatehouse/internal/apierr"
	"github.com/gatehouse-dev/gatehouse/test/support/logbuffer"
)

// unsteadySource is a source of nothing, whose watches end. It cannot send everything
// by a watch.
type unsteadySource struct {
	source

	// missing is the answer to lists, if it is not nil.
	missing error
	// end begins a watch, of which there were so many before.
	end func(before int) (watch.Interface, error)

	mu             sync.Mutex
	lists          []time.Time
	finds, watches int
}

func (s *unsteadySource) find(context.Context) (*resource, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finds++
	return &resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, namespaced: true}, nil
}

func (s *unsteadySource) example() runtime.Object { return &unstructured.Unstructured{} }

func (s *unsteadySource) list(context.Context, *resource, string, metav1.ListOptions) (runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lists = append(s.lists, time.Now())
	if s.missing != nil {
		return nil, s.missing
	}
	return &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMapList", "metadata": map[string]any{"resourceVersion": "1"}}}, nil
}

func (s *unsteadySource) watch(_ context.Context, _ *resource, _ string, o metav1.ListOptions) (watch.Interface, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o.SendInitialEvents != nil {
		return nil, apierrors.NewInvalid(schema.GroupKind{Kind: "ListOptions"}, "", nil)
	}
	s.watches++
	return s.end(s.watches - 1)
}

// follows runs a follower of the source for so long, in the time of a bubble, and
// gives back its log and how many errors it counted.
func (s *unsteadySource) follows(d time.Duration) (log *logbuffer.Buffer, errors int) {
	log = &logbuffer.Buffer{}
	f := newFollower(Target{Kind: configMaps}, s, slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})), func(apierr.Class) { errors++ })
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	f.run(ctx)
	synctest.Wait()
	return log, errors
}

// expired is a watch that says after a time that what it begins with is forgotten.
func expired(after time.Duration) (watch.Interface, error) {
	w := watch.NewFakeWithChanSize(1, false)
	status := apierrors.NewResourceExpired("too old resource version").Status()
	time.AfterFunc(after, func() { w.Error(&status) })
	return w, nil
}

// What ends as soon as it began is read again every few seconds, and not several
// times a second, and somebody is told why.
func TestWatchesThatEndAtOnce(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(int) (watch.Interface, error){
		"closed":        func(int) (watch.Interface, error) { return watch.NewEmptyWatch(), nil },
		"expired":       func(int) (watch.Interface, error) { return expired(0) },
		"expired later": func(int) (watch.Interface, error) { return expired(2 * time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const most = 10*60/5 + 10
				s := &unsteadySource{end: end}
				log, errors := s.follows(10 * time.Minute)
				if n := len(s.lists); n > most || n < 10 {
					t.Errorf("%d lists in ten minutes, want at most %d", n, most)
				}
				if n := strings.Count(log.String(), "level=WARN msg=\"watches end immediately\" kind=ConfigMap.v1"); n != 1 {
					t.Errorf("%d complaints, want one: %s", n, log)
				}
				if want := len(s.lists) - unsteady; errors < want || errors > want+1 {
					t.Errorf("%d errors are counted, want %d", errors, want)
				}
			})
		})
	}
}

// A kind whose list is not there, although discovery has it, is not asked for several
// times a second.
func TestListsThatAreNotThere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const most = 10*60/5 + 10
		s := &unsteadySource{missing: apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, "")}
		s.follows(10 * time.Minute)
		if s.finds > most || s.finds < 10 {
			t.Errorf("it was looked for %d times in ten minutes, want at most %d", s.finds, most)
		}
	})
}

// An API server that forgets what happened is normal: what it has is read again at
// once, also after a time in which nothing lasted, and nobody is told.
func TestWatchThatExpires(t *testing.T) {
	t.Parallel()
	const early = unsteady - 1
	synctest.Test(t, func(t *testing.T) {
		s := &unsteadySource{end: func(before int) (watch.Interface, error) {
			if before < early {
				return expired(0)
			}
			return expired(time.Hour)
		}}
		log, errors := s.follows(3*time.Hour + time.Minute)
		if n := len(s.lists); n != early+4 {
			t.Fatalf("%d lists, want %d", n, early+4)
		}
		for i := early + 1; i < len(s.lists); i++ {
			if late := s.lists[i].Sub(s.lists[i-1]) - time.Hour; late > time.Second {
				t.Errorf("list %d came %s after the watch had ended", i, late)
			}
		}
		if errors > 0 || strings.Contains(log.String(), "level=WARN") {
			t.Errorf("%d errors, %s", errors, log)
		}
	})
}

// What client-go says is in the log, at its lowest level, and has the kind.
func TestReflectorLogs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &unsteadySource{end: func(int) (watch.Interface, error) { return watch.NewEmptyWatch(), nil }}
		log, _ := s.follows(time.Second)
		for line := range strings.Lines(log.String()) {
			if strings.Contains(line, "watch ended with error") && strings.Contains(line, "level=DEBUG") && strings.Contains(line, "kind=ConfigMap.v1") {
				return
			}
		}
		t.Errorf("nothing of it: %s", log)
	})
}
