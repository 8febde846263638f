package tokens

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/internal/apierr"
	"github.com/gatehouse-dev/gatehouse/internal/problemlog"
	"github.com/gatehouse-dev/gatehouse/manifests/crds"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
)

const (
	// usageManager is who the API server notes as the author of status.lastUsed.
	usageManager = "gatehouse-tokens"
	// usageGrain is how far status.lastUsed may be behind.
	usageGrain = time.Hour
	// usageQPS and usageBurst bound what all uses cost the API server, in requests a
	// second and at one time.
	usageQPS, usageBurst = 5, 5
	// usageTimeout bounds one request.
	usageTimeout = 10 * time.Second
	// usageRetry and usageForbidden are how long no use of a token is noted after one
	// could not be, and after one that somebody has to allow first.
	usageRetry, usageForbidden = time.Minute, 10 * time.Minute
)

// ClusterUsage notes in the status of access tokens of a cluster when they were
// last used, to the hour. Before it writes it looks whether another replica has
// noted a use of the hour. What cannot be written is lost, and the next use of the
// token is noted a while later.
//
// It knows the tokens that Know was told and no others, and each waits to be noted
// once, so that nobody who sends tokens can make it grow. It is safe for concurrent
// use, but for Know, whose calls come one after the other.
type ClusterUsage struct {
	client   dynamic.NamespaceableResourceInterface
	problems *problemlog.Log

	mu    sync.Mutex
	known map[string]*clusterUse
	// due are the tokens whose use waits to be written, each once, and wake has a value
	// when there are any.
	due  []string
	wake chan struct{}
}

// clusterUse is what is known of the use of a token.
type clusterUse struct {
	uid types.UID
	// at is the use that waits to be written, and next the time before which no other is
	// noted.
	at, next time.Time
	waits    bool
}

// NewClusterUsage returns a ClusterUsage with a client of its own, so that it never
// keeps anything else waiting. It asks nothing yet: an error is about the
// configuration.
func NewClusterUsage(access *rest.Config, log *slog.Logger) (*ClusterUsage, error) {
	access = rest.CopyConfig(access)
	access.QPS, access.Burst, access.RateLimiter = usageQPS, usageBurst, nil
	client, err := dynamic.NewForConfig(access)
	if err != nil {
		return nil, fmt.Errorf("no client for %s: %w", access.Host, err)
	}
	return newClusterUsage(client, log), nil
}

func newClusterUsage(client dynamic.Interface, log *slog.Logger) *ClusterUsage {
	return &ClusterUsage{
		client:   client.Resource(v1alpha1.GroupVersion.WithResource(tokenResource)),
		problems: problemlog.New(log, "use of access tokens"), wake: make(chan struct{}, 1),
	}
}

// Know makes these the tokens whose use is noted, as far as they are of the
// cluster. Others are forgotten.
func (u *ClusterUsage) Know(tokens []authn.Token) {
	u.mu.Lock()
	defer u.mu.Unlock()
	before := u.known
	u.known = map[string]*clusterUse{}
	for i := range tokens {
		token := &tokens[i]
		if token.Source != config.ClusterSource || token.UID == "" {
			continue
		}
		use := before[token.Name]
		if use == nil || use.uid != token.UID {
			// Copies, so that nothing holds on to the documents.
			use = &clusterUse{uid: types.UID(strings.Clone(string(token.UID)))}
		}
		u.known[strings.Clone(token.Name)] = use
	}
}

// Note notes that a token was used. It is fast, waits for nobody, and does nothing
// for an id that is not known.
func (u *ClusterUsage) Note(id string, at time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	use := u.known[id]
	if use == nil || use.waits || at.Before(use.next) {
		return
	}
	use.at, use.waits = at.Truncate(time.Second), true
	u.due = append(u.due, strings.Clone(id))
	select {
	case u.wake <- struct{}{}:
	default: // it is awake
	}
}

// Run writes what was noted, one token after the other, until ctx is done. It is
// called once.
func (u *ClusterUsage) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-u.wake:
		}
		u.mu.Lock()
		due := u.due
		u.due = nil
		u.mu.Unlock()
		for _, id := range due {
			if ctx.Err() != nil {
				return
			}
			u.mu.Lock()
			use := u.known[id]
			u.mu.Unlock()
			if use != nil {
				next := u.write(ctx, id, use)
				u.mu.Lock()
				use.next, use.waits = next, false
				u.mu.Unlock()
			}
		}
	}
}

// write writes the use that waits, unless another of the hour or a later one is there, and
// returns before when no other is noted.
func (u *ClusterUsage) write(ctx context.Context, id string, use *clusterUse) (next time.Time) {
	last, err := u.last(ctx, id, use.uid)
	if err == nil && !use.at.Before(last.Add(usageGrain)) {
		last, err = use.at, u.patch(ctx, id, use.uid, use.at)
	}
	class := apierr.Classify(err)
	// A token that was deleted or replaced in between is no failure.
	if gone := errors.Is(err, errGone) || class == apierr.NotFound || class == apierr.Conflict; !gone && ctx.Err() == nil {
		u.report(class.Coarse(), err)
	}
	switch {
	case err == nil:
		return last.Add(usageGrain)
	case class.IsDenied(), class == apierr.Unserved:
		return time.Now().Add(usageForbidden)
	default:
		return time.Now().Add(usageRetry)
	}
}

// last returns when the token was last used by what its status says. What the API server
// has in memory is recent enough.
func (u *ClusterUsage) last(ctx context.Context, id string, uid types.UID) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, usageTimeout)
	defer cancel()
	found, err := u.client.Get(ctx, id, metav1.GetOptions{ResourceVersion: "0"})
	if err != nil {
		return time.Time{}, err
	}
	if found.GetUID() != uid {
		return time.Time{}, errGone
	}
	if last := statusOf(found).LastUsed; last != nil {
		return last.Time, nil
	}
	return time.Time{}, nil
}

// patch writes when the token was used into its status, if it is still this token.
func (u *ClusterUsage) patch(ctx context.Context, id string, uid types.UID, at time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, usageTimeout)
	defer cancel()
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": uid},
		"status":   map[string]any{"lastUsed": metav1.NewTime(at)},
	})
	if err != nil {
		return err
	}
	_, err = u.client.Patch(ctx, id, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: usageManager}, "status")
	return err
}

var errGone = errors.New("the token is another one")

// lastUsed is what a problem of ClusterUsage is about.
const lastUsed = "status.lastUsed"

// report logs a failure once for as long as it lasts, and that it is over.
func (u *ClusterUsage) report(class apierr.Class, err error) {
	hint := "Gatehouse tries again; nothing else depends on it"
	switch class { //nolint:exhaustive // the others need nothing but time
	case apierr.None:
		u.problems.Recover(lastUsed)
		return
	case apierr.Forbidden:
		hint = apierr.GrantHint("the ClusterRole gatehouse-resources", "get", "accesstokens and patch of accesstokens/status in "+v1alpha1.GroupVersion.Group+"; nothing else depends on it")
	case apierr.Unserved:
		hint = "apply the CRDs: " + crds.ApplyCommand
	default:
	}
	u.problems.Report(lastUsed, fmt.Sprint(class), "cannot write when they were last used: "+singleLineError(err), hint)
}
