package build

// ProjectURL is the home page of the project.
const ProjectURL = "https://github.com/gatehouse-dev/gatehouse"
