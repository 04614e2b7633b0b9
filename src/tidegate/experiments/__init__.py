"""The paper's experiments: data, the app, the runner and its results."""
