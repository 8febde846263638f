package web

import (
	"context"
	"crypto/rand"
	"errors"
	"html/template"
	"net/http"
	"sync"

	"golang.org/x/sync/semaphore"
)

const (
	// maxRunning bounds the jobs that run at one time, and maxJobs those that are kept with their results.
	maxRunning = 2
	maxJobs    = 16
)

// Job is a long computation in the background, such as a replay. Its page shows progress and then the result.
type Job struct {
	ID, Title string

	cancel context.CancelFunc

	mu       sync.Mutex
	progress string
	result   *View
}

// jobs are the jobs of a server.
type jobs struct {
	running *semaphore.Weighted

	mu    sync.Mutex
	byID  map[string]*Job
	order []*Job
}

func (j *jobs) init() {
	j.running, j.byID = semaphore.NewWeighted(maxRunning), map[string]*Job{}
}

// Start begins a job, and returns it for the template "job". Run reports progress as often as it likes. The context of the job ends with that of
// the console, when the user cancels the job, and when there are too many newer ones. Run gets no request: the page may be closed meanwhile.
func (s *Server) Start(ctx context.Context, title string, run func(ctx context.Context, report func(string)) (*View, error)) *Job {
	ctx, cancel := context.WithCancel(ctx)
	job := &Job{ID: rand.Text(), Title: title, cancel: cancel, progress: "waiting for other computations"}
	s.jobs.add(job)
	go func() {
		defer cancel()
		view, err := func() (*View, error) {
			if err := s.jobs.running.Acquire(ctx, 1); err != nil {
				return nil, err //nolint:wrapcheck // it is that of the context
			}
			defer s.jobs.running.Release(1)
			job.report("starting")
			return run(ctx, job.report)
		}()
		if ctx.Err() != nil {
			err = &Error{http.StatusOK, errors.New("cancelled")}
		}
		if err != nil {
			view = failure(err)
		}
		job.mu.Lock()
		defer job.mu.Unlock()
		job.result = view
	}()
	return job
}

// add keeps a job. The oldest one ends if there are too many.
func (j *jobs) add(job *Job) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.byID[job.ID] = job
	j.order = append(j.order, job)
	if len(j.order) > maxJobs {
		oldest := j.order[0]
		oldest.cancel()
		delete(j.byID, oldest.ID)
		j.order = j.order[1:]
	}
}

func (j *Job) report(progress string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.progress = progress
}

// Progress returns what the job does, for people.
func (j *Job) Progress() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.progress
}

func (s *Server) find(r *http.Request) (*Job, error) {
	s.jobs.mu.Lock()
	defer s.jobs.mu.Unlock()
	job := s.jobs.byID[r.PathValue("id")]
	if job == nil {
		return nil, NotFound("this computation is not kept any more (hint: load the page again)")
	}
	return job, nil
}

// finished is what the template "finished" gets.
type finished struct {
	*Job

	Content template.HTML
}

// showJob shows progress, and then the result.
func (s *Server) showJob(r *http.Request) (*View, error) {
	job, err := s.find(r)
	if err != nil {
		return nil, err
	}
	job.mu.Lock()
	result := job.result
	job.mu.Unlock()
	if result == nil {
		return &View{Template: "job", Data: job}, nil
	}
	text, err := s.execute(result.Template, result.Data)
	if err != nil {
		return nil, err
	}
	return &View{Template: "finished", Data: &finished{job, template.HTML(text)}}, nil // html/template made it
}

func (s *Server) cancelJob(r *http.Request) (*View, error) {
	job, err := s.find(r)
	if err != nil {
		return nil, err
	}
	job.cancel()
	return &View{Template: "job", Data: job}, nil
}
