export const greeting = (name) => `Hello from the library, ${name}`
