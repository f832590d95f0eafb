mod model;
mod toy;
